#include "src/lower/compute/nest.h"

#include <algorithm>

#include "lathe/dialect/loop/memory.h"
#include "lathe/dialect/storage_traits.h"
#include "lathe/lower/schedule.h"
#include "src/lower/schedule/leaves.h"

namespace lathe::lower {
namespace {

constexpr size_t kMaxPieces = 64;
constexpr size_t kMaxUnordered = 8;  // of one loop, where it is not known which cut comes first
constexpr int kMaxRounds = 8;
constexpr int64_t kPiece = 1 << 14;  // elements that one thread takes at a time

}  // namespace

Value WithoutReshapes(Value v) {
  while (v.defining_op() != nullptr && v.defining_op()->HasTrait<KeepsBytes>()) {
    v = v.defining_op()->operand(0);
  }
  return v;
}

void Nest::Write(Value value, Value memory) {
  const Value source = WithoutReshapes(value);
  const std::vector<Dim> dims = elements_.Dims(source);
  Visit(dims, memory, [&](Elements& elements, const Place& at, Value into) {
    elements.Store(into, elements.space().Flatten(at, dims), elements.At(source, at));
  });
}

void Nest::Visit(const std::vector<Dim>& dims, Value memory, const Leaf& leaf) {
  leaf_ = &leaf;
  memory_ = memory;
  dims_ = dims;
  Plan();
  piece_.assign(loops_.size(), 0);
  for (bool more = true; more;) {
    const Operation* before = body_.back();
    WritePiece(memory, elements_);
    if (Operation* last = body_.back();
        last != nullptr && last != before && last->name() == loop::ForOp::kName) {
      ScheduleElements(last, machine_);
    }
    more = NextPiece();
  }
}

void Nest::Plan() {
  loops_.clear();
  for (size_t a = 0; a < dims_.size(); ++a) {
    if (!dims_[a].IsConstant(1)) loops_.push_back({a, dims_[a], {}});
  }
  for (size_t l = 0; l < loops_.size(); ++l) loops_[l].pieces = {{l, 0, {}, {}}};
  for (int round = 0; round < kMaxRounds; ++round) {
    const IndexSpace space = Probe();
    if (!Divide(space.factors()) && !Cut(space.cuts())) return;
  }
}

// Computes the elements once in a place that is thrown away, to see what is asked.
IndexSpace Nest::Probe() {
  Region region(body_.parent_op());
  Block* scratch = region.AddBlock();
  for (size_t i = 0; i < body_.num_arguments(); ++i) {
    scratch->AddArgument(body_.argument(i).type());
  }
  LoopBuilder lb(scratch);
  Elements elements(lb, function_, *scratch);
  for (size_t i = elements.named().size(); i < elements_.named().size(); ++i) {
    elements.Name(elements_.named()[i].first);
  }
  for (const Value v : elements_.bound()) {
    elements.Bind(v, elements.Alloc(v));
  }
  Value memory;
  if (memory_) {
    const Type type = memory_.type();
    const Value one = lb.Int(1);
    memory =
        loop::AllocOp::Create(lb.b(), {&one, TensorOf(memory_).is_static() ? 0U : 1U}, {&type, 1})
            .memory();
  }
  IndexSpace asked;
  piece_.assign(loops_.size(), 0);
  for (bool more = true; more;) {
    WritePiece(memory, elements);
    asked.AddQuestions(elements.space());
    more = NextPiece();
  }
  return asked;
}

bool Nest::Divide(const std::vector<IndexSpace::Factor>& factors) {
  // What a piece asks for divides the piece, and perhaps not the loop that it is a piece of.
  const auto divides = [&](const IndexSpace::Factor& f) {
    const Dim& extent = loops_[f.loop].extent;
    const Dim outer = FloorDiv(extent, f.inner);
    return !outer.is_unknown() && outer * f.inner == extent;
  };
  const auto found = std::ranges::find_if(factors, divides);
  if (found == factors.end()) return false;
  const IndexSpace::Factor& factor = *found;
  Loop& outer = loops_[factor.loop];
  const Loop inner{outer.axis, factor.inner, {}};
  outer.extent = FloorDiv(outer.extent, factor.inner);
  loops_.insert(loops_.begin() + static_cast<std::ptrdiff_t>(factor.loop) + 1, inner);
  for (size_t l = 0; l < loops_.size(); ++l) loops_[l].pieces = {{l, 0, {}, {}}};
  return true;
}

bool Nest::Cut(const std::vector<IndexSpace::Cut>& cuts) {
  bool changed = false;
  for (const IndexSpace::Cut& cut : cuts) {
    Loop& loop = loops_[cut.loop];
    const Loop before = loop;
    if (!CutAt(cut.loop, cut.at)) continue;
    if (CountPieces() > kMaxPieces) {
      loop = before;
    } else {
      changed = true;
    }
  }
  return changed;
}

// False if nothing becomes known. Only the innermost loop, of which vectors are made, is cut where
// that may be outside of it.
bool Nest::CutAt(size_t l, const Dim& at) {
  Loop& loop = loops_[l];
  if (at == loop.extent) return false;
  const bool is_inside = ProvablyAtMost(0, at) && ProvablyAtMost(at, loop.extent);
  if (!is_inside && l + 1 < loops_.size()) return false;
  const auto is_open = [&](const IndexSpace::Piece& piece) {
    return !piece.BeginsAt(at) && !piece.EndsBefore(at);
  };
  const auto open = static_cast<size_t>(std::ranges::count_if(loop.pieces, is_open));
  if (open > 1 && loop.pieces.size() + open > kMaxUnordered) return false;
  bool changed = false;
  for (size_t p = loop.pieces.size(); p-- > 0;) {
    if (is_open(loop.pieces[p])) changed |= CutPiece(l, p, at);
  }
  return changed;
}

// What is outside of the piece is brought to its next end.
bool Nest::CutPiece(size_t l, size_t p, const Dim& at) {
  std::vector<IndexSpace::Piece>& pieces = loops_[l].pieces;
  const Dim begin = pieces[p].start, end = EndOf(l, p);
  const Dim above = ProvablyAtMost(begin, at) ? at : Max(at, begin);
  const Dim start = ProvablyAtMost(above, end) ? above : Min(above, end);
  if (start.is_unknown()) return false;
  IndexSpace::Piece rest = pieces[p];
  rest.start = start;
  rest.cuts_before.push_back(at);
  pieces[p].cuts_after.push_back(at);
  if (start == begin) {
    pieces[p] = rest;
  } else if (!(start == end)) {
    pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(p) + 1, rest);
  }
  return true;
}

// The next of all combinations of pieces; false, and the first one, after the last.
bool Nest::NextPiece() {
  for (size_t l = loops_.size(); l-- > 0;) {
    if (++piece_[l] < loops_[l].pieces.size()) return true;
    piece_[l] = 0;
  }
  return false;
}

Dim Nest::EndOf(size_t l, size_t p) const {
  const Loop& loop = loops_[l];
  return p + 1 < loop.pieces.size() ? loop.pieces[p + 1].start : loop.extent;
}

Dim Nest::PieceExtent(size_t l) const { return EndOf(l, piece_[l]) - PieceOf(l).start; }

size_t Nest::CountPieces() const {
  size_t count = 1;
  for (const Loop& loop : loops_) count *= loop.pieces.size();
  return count;
}

void Nest::WritePiece(Value memory, Elements& elements) {
  elements.Reset();
  sizes_.assign(loops_.size(), Value());
  for (size_t l = 0; l < loops_.size(); ++l) {
    const Dim extent = PieceExtent(l);
    if (extent.IsConstant(0)) return;
    if (!extent.is_constant()) sizes_[l] = elements.Int(extent);
  }
  at_.clear();
  WriteLoops(0, memory, elements);
}

// As deep as there are loops.
void Nest::WriteLoops(size_t depth, Value memory, Elements& elements) {
  if (depth == loops_.size()) {
    return (*leaf_)(elements, AxesAt(), memory);
  }
  const Dim extent = PieceExtent(depth);
  const auto body = [&](Value i) {
    const Dim counter = elements.Counter(i, extent, PieceOf(depth));
    at_.push_back(PieceOf(depth).start + counter);
    WriteLoops(depth + 1, memory, elements);
    at_.pop_back();
  };
  if (sizes_[depth]) {
    elements.lb().For(sizes_[depth], false, body);
  } else if (extent.IsConstant(1)) {
    body(Value());
  } else {
    elements.lb().For(extent, false, body);
  }
}

Place Nest::AxesAt() const {
  Place at(dims_.size(), 0);
  for (size_t l = 0; l < loops_.size(); ++l) {
    Dim& index = at[loops_[l].axis];
    index = index * loops_[l].extent + at_[l];
  }
  return at;
}

// ---- schedule ----

namespace {

// The loops of a perfect nest, the outermost first.
std::vector<Operation*> NestOf(Operation* outermost) {
  std::vector<Operation*> loops;
  for (Operation* l = outermost; l != nullptr; l = schedule::PerfectlyNested(l)) {
    if (l->num_results() > 0) break;
    loops.push_back(l);
  }
  return loops;
}

// Joins neighbors that one index can walk, from the inside.
std::vector<Operation*> FuseAll(Operation* outermost) {
  std::vector<Operation*> loops = NestOf(outermost);
  for (size_t k = loops.size() - 1; k-- > 0;) {
    if (!schedule::FusesWithoutDivision(loops[k])) continue;
    loops[k] = schedule::Fuse(loops[k]);
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(k) + 1);
  }
  return loops;
}

bool IsLarge(const std::vector<Operation*>& loops) {
  schedule::Leaves leaves;
  Dim work = 1;
  for (const Operation* l : loops) work *= schedule::ExtentOf(l, leaves);
  return !work.is_constant() || work.value() > 2 * kPiece;
}

void VectorizeIfPossible(Operation* loop, const Machine& machine) {
  if (loop == nullptr || !schedule::WhyNotVectorize(loop).empty()) return;
  schedule::Vectorize(loop, schedule::SuitableLanes(loop, machine.vector_bytes));
}

// Brings the loop along which elements are read one after the other next to the innermost one.
// False if there is none.
bool VectorizeTurned(std::vector<Operation*>& loops, const Machine& machine) {
  for (size_t k = loops.size() - 1; k-- > 0;) {
    if (!schedule::ReadsAlong(loops[k], loops.back())) continue;
    for (size_t at = k; at + 2 < loops.size(); ++at) {
      if (!schedule::WhyNotInterchange(loops[at]).empty()) return false;
      loops[at] = schedule::Interchange(loops[at]);
      loops[at + 1] = schedule::PerfectlyNested(loops[at]);
      if (loops[at + 1] == nullptr) return false;
    }
    Operation* outer = loops[loops.size() - 2];
    if (!schedule::WhyNotVectorizeTurned(outer).empty()) return false;
    schedule::VectorizeTurned(outer, machine.vector_bytes);
    return true;
  }
  return false;
}

}  // namespace

void ScheduleElements(Operation* outermost, const Machine& machine) {
  if (outermost->num_results() > 0) return;  // one that carries values is not a nest of elements
  std::vector<Operation*> loops = FuseAll(outermost);
  const bool is_large = IsLarge(loops);
  if (is_large && loops.size() == 1) {
    const schedule::SplitLoops split = schedule::Split(loops[0], kPiece);
    if (schedule::WhyNotParallel(split.outer).empty()) schedule::Parallel(split.outer);
    VectorizeIfPossible(split.inner, machine);
    VectorizeIfPossible(split.rest, machine);
    return;
  }
  if (is_large && schedule::WhyNotParallel(loops[0]).empty()) schedule::Parallel(loops[0]);
  if (loops.size() > 1 && VectorizeTurned(loops, machine)) return;
  VectorizeIfPossible(loops.back(), machine);
}

}  // namespace lathe::lower
