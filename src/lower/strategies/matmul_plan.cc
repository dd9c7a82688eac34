#include "src/lower/strategies/matmul_plan.h"

#include <algorithm>
#include <bit>

#include "lathe/support/divide.h"
#include "src/lower/tile_knobs.h"

namespace lathe::lower {
namespace {

// Multiply-adds that keep a thread busy for about 10 microseconds: less is not worth another one.
constexpr int64_t kThreadWork = 1 << 20;

// In how many of them an element of the right matrix comes from memory.
constexpr int64_t kReadWork = 12;

// Rows that a panel is multiplied by before it gives way to the next one.
constexpr int64_t kMostRows = 512;

// Rows of a matrix that is read in place and from memory: they are walked side by side.
constexpr int64_t kStreams = 8;

// Panels that are not enough to pack a block of the left matrix for.
constexpr int64_t kFewPanels = 2;

// Panels that a block of depth is multiplied by before the next block.
constexpr int64_t kGroupPanels = 16;

class Planner {
 public:
  Planner(const ProductForm& form, const Machine& machine, bool computes_left, ProductPlan& plan,
          Knobs& knobs)
      : form_(form), machine_(machine), computes_left_(computes_left), plan_(plan), knobs_(knobs) {}

  void Run() {
    const bool few = form_.rows.is_constant() && form_.rows.value() <= kFewRows;
    plan_.lanes = machine_.lanes(plan_.sum);
    plan_.tile =
        PickTile(form_.rows, form_.columns, plan_.lanes, machine_.vector_registers, kFewRows);
    if (!few) {
      plan_.tile = ChooseTile(knobs_, plan_.tile, form_.rows, form_.columns, plan_.lanes,
                              machine_.vector_registers);
    }
    CutDepth(few);
    // Elements that are converted or computed are so once.
    plan_.pack_left =
        (computes_left_ || (plan_.sum != form_.left.element && !few)) && CanPackLeft();
    if (!few && !computes_left_ && CanPackLeft()) {
      const int64_t both[] = {0, 1};
      const bool pack = plan_.pack_left || (SpreadsLeft() && HasSeveralPanels());
      plan_.pack_left = knobs_.Choose("pack_left", pack ? 1 : 0, both) == 1;
    }
    CutRows();
    CutColumns();
    plan_.items = plan_.row_blocks * plan_.groups;
    for (const Dim& dim : form_.batch) plan_.items *= dim;
    const Dim rows = Min(form_.rows, plan_.block_rows);
    const Dim columns = Min(form_.columns, plan_.group_panels * width());
    const Dim work = (rows + kReadWork) * columns * form_.depth;
    plan_.chunk = Max(FloorDiv(ThreadWork(), Max(work, 1)), 1);
  }

 private:
  int64_t width() const { return plan_.tile.vectors * plan_.lanes; }
  // Where each step of depth is another line of the cache, and often one of the same set.
  bool SpreadsLeft() const { return form_.left.EndsWith(kRow); }
  bool HasSeveralPanels() const {
    return !form_.columns.is_constant() || form_.columns.value() > kFewPanels * width();
  }
  bool CanPackLeft() const { return form_.left.EndsWith(kDepth) || form_.left.EndsWith(kRow); }
  int64_t bytes() const { return BitWidth(plan_.sum) / 8; }

  // As a power of two.
  int64_t ThreadWork() {
    const int64_t log = std::bit_width(static_cast<uint64_t>(kThreadWork)) - 1;
    const int64_t others[] = {log - 2, log - 1, log + 1, log + 2};
    return int64_t{1} << knobs_.Choose("thread_work", log, others);
  }

  // Parts of an extent, at most `most_units` units.
  static std::vector<int64_t> Blocks(int64_t extent, int64_t unit, int64_t most_units) {
    std::vector<int64_t> blocks;
    for (const int64_t units : {4, 8, 16, 32, 64, 128, 256}) {
      if (units <= most_units && units * unit < extent) blocks.push_back(units * unit);
    }
    return blocks;
  }

  void CutDepth(bool few_rows) {
    int64_t most = std::max<int64_t>(machine_.l2_bytes / 2 / (width() * bytes()), 64);
    if (plan_.right == RightPlace::kInPlace) most = kStreams;
    if (!form_.depth.is_constant()) {
      plan_.block_depth = knobs_.Choose("depth", most, Depths(most + 1));
      plan_.leading_blocks = FloorDiv(Max(form_.depth, 1) - 1, plan_.block_depth);
      return;
    }
    const int64_t depth = std::max<int64_t>(form_.depth.value(), 1);
    const bool whole = few_rows && plan_.right == RightPlace::kPacked && !computes_left_;
    const int64_t blocks = whole ? 1 : CeilDiv(depth, most);
    plan_.block_depth = blocks == 1 ? depth : RoundUp(CeilDiv(depth, blocks), 8);
    plan_.block_depth = knobs_.Choose("depth", plan_.block_depth, Depths(depth));
    plan_.leading_blocks = CeilDiv(depth, plan_.block_depth) - 1;
  }

  std::vector<int64_t> Depths(int64_t depth) const {
    const int64_t most = machine_.l2_bytes / (width() * bytes());
    return Blocks(depth, plan_.right == RightPlace::kInPlace ? 1 : 8, most / 8);
  }

  void CutRows() {
    const int64_t most = plan_.pack_left
                             ? std::clamp(machine_.l2_bytes / 2 / (plan_.block_depth * bytes()),
                                          plan_.tile.rows, kMostRows)
                             : kMostRows;
    plan_.block_rows = most / plan_.tile.rows * plan_.tile.rows;
    if (form_.rows.is_constant()) {
      const int64_t rows = std::max<int64_t>(form_.rows.value(), 1);
      const int64_t blocks = CeilDiv(rows, plan_.block_rows);
      plan_.block_rows = RoundUp(CeilDiv(rows, blocks), plan_.tile.rows);
    }
    const int64_t all = form_.rows.is_constant() ? form_.rows.value() : 2 * kMostRows;
    const int64_t most_rows =
        plan_.pack_left ? machine_.l2_bytes / (plan_.block_depth * bytes()) : kMostRows;
    plan_.block_rows = knobs_.Choose("block_rows", plan_.block_rows,
                                     Blocks(all, plan_.tile.rows, most_rows / plan_.tile.rows));
    plan_.row_blocks = CeilDiv(form_.rows, plan_.block_rows);
  }

  void CutColumns() {
    const bool deep = !plan_.leading_blocks.IsConstant(0);
    const int64_t usual = plan_.writes_sums ? kGroupPanels : kGroupPanels / 4;
    plan_.group_panels = deep || plan_.pack_left ? usual : 1;
    if (form_.columns.is_constant()) {
      plan_.group_panels =
          std::clamp<int64_t>(CeilDiv(form_.columns.value(), width()), 1, plan_.group_panels);
    }
    const int64_t most =
        form_.columns.is_constant() ? CeilDiv(form_.columns.value(), width()) : kGroupPanels;
    std::vector<int64_t> panels;
    for (const int64_t n : {1, 2, 4, 8, 16}) {
      if (n <= most) panels.push_back(n);
    }
    plan_.group_panels = knobs_.Choose("panels", plan_.group_panels, panels);
    plan_.groups = CeilDiv(CeilDiv(form_.columns, width()), plan_.group_panels);
  }

  const ProductForm& form_;
  const Machine& machine_;
  bool computes_left_;
  ProductPlan& plan_;
  Knobs& knobs_;
};

}  // namespace

ElementType SumElement(ElementType element) {
  switch (element) {
    case ElementType::kF16:
    case ElementType::kBF16:
      return ElementType::kF32;
    case ElementType::kI8:
    case ElementType::kU8:
      return ElementType::kI32;
    default:
      return element;
  }
}

ProductPlan PlanProduct(const ProductForm& form, RightPlace right, const Machine& machine,
                        bool writes_sums, bool computes_left, Knobs& knobs) {
  ProductPlan plan;
  plan.right = right;
  plan.sum = SumElement(form.left.element);
  plan.writes_sums = writes_sums;
  Planner(form, machine, computes_left, plan, knobs).Run();
  return plan;
}

}  // namespace lathe::lower
