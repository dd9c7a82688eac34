#include <algorithm>
#include <array>
#include <utility>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/loop.h"
#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/loop/tile.h"
#include "lathe/lower/schedule.h"
#include "lathe/support/error.h"
#include "src/lower/schedule/product_nest.h"
#include "src/lower/schedule/touched.h"

namespace lathe::schedule {
namespace {

int64_t ExtentOf(const Operation* loop) { return *loop::ForOp(loop).extent(); }

// Loops over rows, or over columns: those over tiles, outermost first, then that of a tile.
struct Side {
  std::vector<const Operation*> blocks = {};
  const Operation* tile = nullptr;  // null: there is one row, or column

  int64_t extent() const { return tile == nullptr ? 1 : ExtentOf(tile); }
  int64_t count() const {
    int64_t count = 1;
    for (const Operation* loop : blocks) count *= ExtentOf(loop);
    return count;
  }
};

// Rows of a tile lie one step along `axis` apart.
struct Place {
  const Element* element = nullptr;
  size_t axis = 0;
};

class Tensorizer {
 public:
  explicit Tensorizer(const Operation* loop) : loop_(const_cast<Operation*>(loop)) {}

  std::string Refusal();
  void Write();

 private:
  std::string SetSides();
  bool StoresNeighbors(const Operation* loop);
  std::string SpellGroups();
  std::string SetPlaces();
  std::string FindRows(const char* what, const Operation* row, const Operation* along,
                       Place& place);
  std::string CheckSteps(const char* what, const Place& place, const Operation* along,
                         int64_t step);
  std::string SortGroup();
  std::string CheckApart();
  std::string CheckLimits() const;
  std::string CheckLeaves();

  Dim Slope(const Dim& expr, const Operation* loop) { return leaves_.Slope(expr, CounterOf(loop)); }
  bool Moves(const Element& e, const Operation* loop) {
    return std::ranges::any_of(
        e.at, [&](const Dim& index) { return leaves_.Reads(index, CounterOf(loop)); });
  }
  // Elements from the begin of a row on.
  static Dim Within(const Element& e, size_t axis);

  // A tile of a block, by its numbers among rows and columns.
  std::vector<Value> At(Builder& b, const Place& place, int64_t row, int64_t column);
  void SetBlock(std::vector<Dim>& at, const Side& side, int64_t number);
  Value Load(Builder& b, const Place& place, int64_t row, int64_t column, int64_t rows,
             int64_t columns);
  std::vector<Value> Starts(Builder& b);
  std::vector<Value> Multiply(Builder& b, std::span<const Value> sums);
  std::vector<Value> Sums(Builder& b, std::span<const Value> starts);

  Operation* loop_;
  Leaves leaves_;
  ProductNest nest_;
  int64_t groups_ = 0;  // of depth, in a tile
  Side rows_, columns_;
  Place left_, right_, sum_;
};

std::string Tensorizer::Refusal() {
  if (std::string why = FindProducts(loop_, leaves_, nest_); !why.empty()) return why;
  for (const auto check :
       {&Tensorizer::SetSides, &Tensorizer::SpellGroups, &Tensorizer::SetPlaces,
        &Tensorizer::SortGroup, &Tensorizer::CheckApart, &Tensorizer::CheckLeaves}) {
    if (std::string why = (this->*check)(); !why.empty()) return why;
  }
  return CheckLimits();
}

// ---- where the elements lie ----

std::string Tensorizer::SetSides() {
  Side first, second;  // that move the first factor, and the second
  const Factors& f = nest_.products[0];
  for (const Operation* loop : nest_.loops) {
    const bool moves_first = Moves(f.left, loop), moves_second = Moves(f.right, loop);
    if (moves_first && moves_second) return "a loop moves both factors, and is not the depth";
    if (!moves_first && !moves_second) return "a loop moves neither factor";
    if (!Moves(nest_.stored, loop)) return "a loop does not move what is stored";
    Side& side = moves_first ? first : second;
    if (side.tile != nullptr) side.blocks.push_back(side.tile);
    side.tile = loop;
  }
  rows_ = std::move(first);
  columns_ = std::move(second);
  const bool is_turned = StoresNeighbors(rows_.tile) && !StoresNeighbors(columns_.tile);
  if (!is_turned) return "";
  std::swap(rows_, columns_);
  for (Factors& product : nest_.products) std::swap(product.left, product.right);
  return "";
}

bool Tensorizer::StoresNeighbors(const Operation* loop) {
  return loop != nullptr && !nest_.stored.at.empty() &&
         Slope(nest_.stored.at.back(), loop).IsConstant(1);
}

// An iteration over an element of depth becomes one over a group.
std::string Tensorizer::SpellGroups() {
  const int64_t group = nest_.group(), steps = ExtentOf(nest_.depth);
  const auto count = static_cast<int64_t>(nest_.products.size());
  groups_ = steps;
  if (count == group) return "";
  if (count != 1) {
    return StrCat("an iteration over the depth has ", count, " products, neither 1 nor ", group);
  }
  if (steps % group != 0) return StrCat("the depth ", steps, " is not a multiple of ", group);
  groups_ = steps / group;
  const Value counter = CounterOf(nest_.depth);
  const Factors all = nest_.products[0];
  nest_.products.clear();
  for (int64_t place = 0; place < group; ++place) {
    Factors f = all;
    for (Element* e : {&f.left, &f.right}) {
      for (Dim& index : e->at) {
        index = leaves_.Replace(index, counter, leaves_.SymbolOf(counter) * group + place);
      }
    }
    nest_.products.push_back(std::move(f));
  }
  return "";
}

std::string Tensorizer::SetPlaces() {
  const int64_t group = nest_.group();
  left_.element = &nest_.products[0].left;
  right_.element = &nest_.products[0].right;
  sum_.element = &nest_.stored;
  struct Wanted {
    const char* what;
    Place& place;
    const Operation *row, *along;
    int64_t step;
  };
  const std::array wanted = {
      Wanted{"the left factor", left_, rows_.tile, nest_.depth, group},
      Wanted{"the right factor", right_, nest_.depth, columns_.tile, group},
      Wanted{"what is stored", sum_, rows_.tile, columns_.tile, 1},
  };
  for (const Wanted& w : wanted) {
    if (std::string why = FindRows(w.what, w.row, w.along, w.place); !why.empty()) return why;
    if (std::string why = CheckSteps(w.what, w.place, w.along, w.step); !why.empty()) return why;
  }
  return "";
}

std::string Tensorizer::FindRows(const char* what, const Operation* row, const Operation* along,
                                 Place& place) {
  const std::vector<Dim>& at = place.element->at;
  const auto moved_by = [&](const Operation* loop) {
    const auto first = std::ranges::find_if(
        at, [&](const Dim& index) { return leaves_.Reads(index, CounterOf(loop)); });
    return static_cast<size_t>(first - at.begin());
  };
  if (row != nullptr) {
    place.axis = moved_by(row);
    for (size_t a = 0; a < at.size(); ++a) {
      if (Slope(at[a], row).IsConstant(a == place.axis ? 1 : 0)) continue;
      return StrCat("rows of ", what, " are not one step along an axis apart");
    }
    if (place.axis < at.size()) return "";
    return StrCat("rows of ", what, " are not one step along an axis apart");
  }
  const size_t behind = along == nullptr ? at.size() - 1 : moved_by(along);
  if (at.empty() || behind == 0) return StrCat(what, " has no axis for rows");
  place.axis = behind - 1;
  return "";
}

Dim Tensorizer::Within(const Element& e, size_t axis) {
  const auto dims = e.memory.type().cast<AnyTensorType>().dims();
  Dim within = 0;
  for (size_t a = axis + 1; a < e.at.size(); ++a) within = within * dims[a] + e.at[a];
  return within;
}

std::string Tensorizer::CheckSteps(const char* what, const Place& place, const Operation* along,
                                   int64_t step) {
  if (along == nullptr) return "";
  const std::string why =
      StrCat("columns of ", what, " are not ", step, " elements of a row apart");
  for (size_t a = 0; a <= place.axis; ++a) {
    if (!Slope(place.element->at[a], along).IsConstant(0)) return why;
  }
  return Slope(Within(*place.element, place.axis), along).IsConstant(step) ? "" : why;
}

// The products by their places in a group, which are those of both factors.
std::string Tensorizer::SortGroup() {
  const auto distance = [](const Place& from, const Element& to) -> std::optional<int64_t> {
    for (size_t a = 0; a <= from.axis; ++a) {
      if (from.element->at[a] != to.at[a]) return std::nullopt;
    }
    const Dim d = Within(to, from.axis) - Within(*from.element, from.axis);
    return d.is_constant() ? std::optional(d.value()) : std::nullopt;
  };
  std::vector<std::pair<int64_t, size_t>> places;
  for (size_t i = 0; i < nest_.products.size(); ++i) {
    const auto left = distance(left_, nest_.products[i].left);
    const auto right = distance(right_, nest_.products[i].right);
    if (!left || left != right) return "factors of one product have different places in a group";
    places.emplace_back(*left, i);
  }
  std::ranges::sort(places);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].first - places[0].first == static_cast<int64_t>(i)) continue;
    return "the products of an iteration are not those of a group";
  }
  left_.element = &nest_.products[places[0].second].left;
  right_.element = &nest_.products[places[0].second].right;
  return "";
}

// Each iteration stores an element of its own: along each axis the counters count like digits.
std::string Tensorizer::CheckApart() {
  for (const Dim& index : nest_.stored.at) {
    std::vector<std::pair<int64_t, int64_t>> digits;  // step, how many
    for (const Operation* loop : nest_.loops) {
      const Dim slope = Slope(index, loop);
      if (slope.IsConstant(0)) continue;
      if (!slope.is_constant()) return "how far apart elements are stored is not constant";
      digits.emplace_back(slope.value(), ExtentOf(loop));
    }
    std::ranges::sort(digits);
    int64_t spread = 0;
    for (const auto& [step, count] : digits) {
      if (step <= spread) return "iterations may store in the same place";
      spread += step * (count - 1);
    }
  }
  return "";
}

// What is used inside must be known before the loops, but for their counters.
std::string Tensorizer::CheckLeaves() {
  std::vector<Value> counters;
  for (const Operation* loop : nest_.loops) counters.push_back(CounterOf(loop));
  counters.push_back(CounterOf(nest_.depth));
  const auto is_known = [&](const Dim& expr) {
    return std::ranges::none_of(leaves_.In(expr), [&](Value leaf) {
      const Operation* owner =
          leaf.is_block_argument() ? leaf.argument_block()->parent_op() : leaf.defining_op();
      return IsInside(owner, loop_) && std::ranges::count(counters, leaf) == 0;
    });
  };
  if (nest_.blocks != nullptr) {
    const Dim extent = schedule::ExtentOf(nest_.blocks, leaves_);
    for (const Value counter : counters) {
      if (leaves_.Reads(extent, counter)) return "the depth depends on the loops around it";
    }
    if (!is_known(extent)) return "the depth is computed in the loops";
    counters.push_back(CounterOf(nest_.blocks));
  }
  for (const Place* place : {&left_, &right_, &sum_}) {
    for (const Dim& index : place->element->at) {
      if (index.is_unknown()) return "an index is too large";
      if (!is_known(index)) return "an index is not made of counters of loops";
    }
  }
  return "";
}

std::string Tensorizer::CheckLimits() const {
  const int64_t most = loop::kTileRowBytes / 4;
  const std::pair<const char*, int64_t> extents[] = {
      {"rows", rows_.extent()}, {"columns", columns_.extent()}, {"groups of depth", groups_}};
  for (const auto& [what, extent] : extents) {
    if (extent > most) return StrCat("a tile has at most ", most, " ", what, ", not ", extent);
  }
  const int64_t registers = rows_.count() * columns_.count() + rows_.count() + 1;
  return registers <= loop::kTileRegisters
             ? ""
             : StrCat("blocks of ", rows_.count(), " x ", columns_.count(), " tiles need ",
                      registers, " registers; there are ", loop::kTileRegisters);
}

// ---- tiles ----

// The counters of the loops over tiles become those of tile `number`.
void Tensorizer::SetBlock(std::vector<Dim>& at, const Side& side, int64_t number) {
  for (size_t i = side.blocks.size(); i-- > 0;) {
    const Operation* loop = side.blocks[i];
    for (Dim& index : at) index = leaves_.Replace(index, CounterOf(loop), number % ExtentOf(loop));
    number /= ExtentOf(loop);
  }
}

std::vector<Value> Tensorizer::At(Builder& b, const Place& place, int64_t row, int64_t column) {
  std::vector<Dim> at = place.element->at;
  for (const Operation* loop : {rows_.tile, columns_.tile, nest_.depth}) {
    if (loop == nullptr) continue;
    for (Dim& index : at) index = leaves_.Replace(index, CounterOf(loop), 0);
  }
  SetBlock(at, rows_, row);
  SetBlock(at, columns_, column);
  std::vector<Value> values;
  for (const Dim& index : at) values.push_back(leaves_.Emit(b, index));
  return values;
}

Value Tensorizer::Load(Builder& b, const Place& place, int64_t row, int64_t column, int64_t rows,
                       int64_t columns) {
  const std::vector<Value> at = At(b, place, row, column);
  return loop::TileLoadOp::Create(
             b, place.element->memory, at,
             {.rows = rows, .columns = columns, .axis = static_cast<int64_t>(place.axis)})
      .tile();
}

// Sums of tile (r, c) are number r * columns + c.
std::vector<Value> Tensorizer::Starts(Builder& b) {
  std::vector<Value> starts;
  const int64_t rows = rows_.extent(), columns = columns_.extent();
  for (int64_t r = 0; r < rows_.count(); ++r) {
    for (int64_t c = 0; c < columns_.count(); ++c) {
      starts.push_back(
          nest_.start ? Load(b, sum_, r, c, rows, columns)
                      : loop::TileZeroOp::Create(
                            b, {.rows = rows, .columns = columns, .element = nest_.stored.type()})
                            .tile());
    }
  }
  return starts;
}

// All tiles of the left matrix are held, and those of the right one by one.
std::vector<Value> Tensorizer::Multiply(Builder& b, std::span<const Value> sums) {
  const int64_t group = nest_.group(), across = columns_.count();
  std::vector<Value> left, next(sums.begin(), sums.end());
  for (int64_t r = 0; r < rows_.count(); ++r) {
    left.push_back(Load(b, left_, r, 0, rows_.extent(), groups_ * group));
  }
  for (int64_t c = 0; c < across; ++c) {
    const Value right = Load(b, right_, 0, c, groups_, columns_.extent() * group);
    for (int64_t r = 0; r < rows_.count(); ++r) {
      Value& sum = next[static_cast<size_t>(r * across + c)];
      sum = loop::TileMmaOp::Create(b, left[static_cast<size_t>(r)], right, sum).y();
    }
  }
  return next;
}

std::vector<Value> Tensorizer::Sums(Builder& b, std::span<const Value> starts) {
  if (nest_.blocks == nullptr) return Multiply(b, starts);
  const Dim extent = schedule::ExtentOf(nest_.blocks, leaves_);
  std::vector<Type> types;
  for (const Value v : starts) types.push_back(v.type());
  loop::ForOp::Attrs attrs;
  Value size;
  if (extent.is_constant()) {
    attrs.extent = extent.value();
  } else {
    size = leaves_.Emit(b, extent);
  }
  Operation* op = loop::ForOp::Create(b, size, starts, types, attrs).operation();
  Block* body = op->region(0).AddBlock();
  body->AddArgument(CounterOf(nest_.blocks).type());
  for (const Type type : types) body->AddArgument(type);
  const Dim counter = leaves_.SymbolOf(body->argument(0));
  for (Factors& f : nest_.products) {
    for (Element* e : {&f.left, &f.right}) {
      for (Dim& index : e->at) index = leaves_.Replace(index, CounterOf(nest_.blocks), counter);
    }
  }
  std::vector<Value> carried;
  for (size_t i = 1; i < body->num_arguments(); ++i) carried.push_back(body->argument(i));
  Builder inside = Builder::AtEnd(body);
  inside.set_location(loop_->location());
  cf::YieldOp::Create(inside, Multiply(inside, carried));
  std::vector<Value> sums;
  for (size_t i = 0; i < op->num_results(); ++i) sums.push_back(op->result(i));
  return sums;
}

void Tensorizer::Write() {
  Builder b = Builder::Before(loop_);
  b.set_location(loop_->location());
  const std::vector<Value> sums = Sums(b, Starts(b));
  for (int64_t r = 0; r < rows_.count(); ++r) {
    for (int64_t c = 0; c < columns_.count(); ++c) {
      const std::vector<Value> at = At(b, sum_, r, c);
      loop::TileStoreInplaceOp::Create(b, nest_.stored.memory,
                                       sums[static_cast<size_t>(r * columns_.count() + c)], at,
                                       {.axis = static_cast<int64_t>(sum_.axis)});
    }
  }
  loop_->Erase();
}

}  // namespace

std::string WhyNotTensorize(const Operation* loop) { return Tensorizer(loop).Refusal(); }

void Tensorize(Operation* loop) {
  Tensorizer tensorizer(loop);
  if (const std::string why = tensorizer.Refusal(); !why.empty()) Refuse(loop, "tensorize", why);
  tensorizer.Write();
}

}  // namespace lathe::schedule
