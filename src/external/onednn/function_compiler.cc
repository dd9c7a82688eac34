#include "src/external/onednn/function_compiler.h"

#include <algorithm>
#include <new>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/ir/traits.h"
#include "lathe/support/error.h"

namespace lathe::onednn {
namespace {

using Kind = Place::Kind;
constexpr uint32_t kNoResult = ~0U;
constexpr size_t kMostFollowers = 8;

std::string ShortName(const Operation* op) {
  return std::string(op->name().substr(op->name().find('.') + 1));
}

std::string DimsText(const Dims& dims) {
  std::string text;
  for (const int64_t extent : dims) text += StrCat(text.empty() ? "" : ",", extent);
  return StrCat("[", text, "]");
}

std::shared_ptr<void> AlignedBytes(int64_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  return {::operator new(size, kAlignment), [](void* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace

FunctionCompiler::FunctionCompiler(const dnnl::engine& engine, const Operation* function,
                                   const Program& program, bool in_parts)
    : engine_(engine),
      body_(*const_cast<Operation*>(function)->region(0).front()),
      program_(program),
      in_parts_(in_parts),
      sequence_(std::make_shared<Sequence>(engine)) {}

std::shared_ptr<const Sequence> FunctionCompiler::Compile() {
  const OneThread one;
  sequence_->num_arguments = body_.num_arguments();
  sequence_->num_results = body_.back()->num_operands();
  for (uint32_t i = 0; i < body_.num_arguments(); ++i) {
    states_[body_.argument(i)].row_major = Place{Kind::kArgument, i};
  }
  FindChains();
  for (Operation& op : body_) {
    if (op.HasTrait<Terminator>()) break;
    Visit(&op);
  }
  SetResults();
  PlaceStorages();
  return std::move(sequence_);
}

void FunctionCompiler::AddConstant(Operation* op) {
  const auto read = op->dyn_cast<builtin::GetParameterOp>();
  const Tensor value = read ? program_.parameters().Find(read.name())->data
                            : op->attribute("value").cast<TensorAttribute>().value();
  const auto kept = std::make_shared<Tensor>(value);
  states_[op->result(0)].row_major = AddConstantBytes(kept, kept->raw());
}

Place FunctionCompiler::AddConstantBytes(std::shared_ptr<const void> owner, const void* data) {
  sequence_->constants.push_back({std::move(owner), data});
  return {Kind::kConstant, static_cast<uint32_t>(sequence_->constants.size() - 1)};
}

// In program order, so that of two that could take an op along the first one does.
void FunctionCompiler::FindChains() {
  for (Operation& op : body_) {
    if (!TakesFollowers(&op)) continue;
    Chain chain = LongestChain(&op);
    const Operation* last = chain.ops.back();
    for (const Operation* inner : chain.ops) {
      if (inner != last) inside_.insert(inner);
    }
    chains_.emplace(last, std::move(chain));
  }
}

// The operation that reads a value, if it is the only one and nothing else did take it.
Operation* FunctionCompiler::NextOf(Value result) const {
  Operation* next = nullptr;
  for (const auto& use : result.uses()) {
    if (next != nullptr) return nullptr;
    next = use.owner();
  }
  if (next == nullptr || next->HasTrait<Terminator>() || TakesFollowers(next)) return nullptr;
  return inside_.contains(next) || chains_.contains(next) ? nullptr : next;
}

FunctionCompiler::Chain FunctionCompiler::LongestChain(Operation* anchor) const {
  std::vector<Operation*> followers;
  for (Operation* op = anchor; followers.size() < kMostFollowers;) {
    op = NextOf(op->result(0));
    if (op == nullptr) break;
    followers.push_back(op);
  }
  Chain chain;
  for (size_t n = followers.size();; --n) {
    if (TryChain(anchor, std::span(followers).first(n), chain)) return chain;
    LATHE_CHECK(n > 0, "oneDNN took ", anchor->Describe());
  }
}

// A row that is added first is the bias of a product.
bool FunctionCompiler::TryChain(Operation* anchor, std::span<Operation* const> followers,
                                Chain& chain) const {
  const auto try_with = [&](Value bias, size_t first) {
    Described d = Describe(engine_, anchor, {.bias = bias});
    if (!d.why_not.empty()) return false;
    Value result = followers.empty() || first == 0 ? anchor->result(0) : followers[0]->result(0);
    for (Operation* op : followers.subspan(first)) {
      if (!Follow(d.node, op, result)) return false;
      result = op->result(0);
    }
    try {
      if (!IsFast(d.node.Make()) && !followers.empty()) return false;
    } catch (const dnnl::error&) {
      return false;
    }
    chain.node = std::move(d.node);
    chain.ops = {anchor};
    chain.ops.insert(chain.ops.end(), followers.begin(), followers.end());
    return true;
  };
  if (!followers.empty() && anchor->num_operands() == 2 && IsBiasOf(anchor, followers[0])) {
    Operation* add = followers[0];
    const Value bias = add->operand(add->operand(0) == anchor->result(0) ? 1 : 0);
    if (try_with(bias, 1)) return true;
  }
  return try_with({}, 0);
}

void FunctionCompiler::Visit(Operation* op) {
  if (IsConstant(op->result(0))) return AddConstant(op);
  if (inside_.contains(op)) return;
  if (const auto chain = chains_.find(op); chain != chains_.end()) {
    return Emit(chain->second.node, chain->second.ops);
  }
  const Described d = Describe(engine_, op, {.channels_last = WantsChannelsLast(op)});
  LATHE_CHECK(d.why_not.empty(), op->Describe(), ": ", d.why_not);
  Operation* const ops[] = {op};
  Emit(d.node, ops);
}

// Elementwise operations take the order that an operand of the full shape has.
bool FunctionCompiler::WantsChannelsLast(const Operation* op) const {
  const size_t rank = TensorOf(op->result(0)).rank();
  if (rank < 3 || rank > 5) return false;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (!op->operand(i) || TensorOf(op->operand(i)).rank() != rank) continue;
    const auto state = states_.find(op->operand(i));
    if (state != states_.end() && !state->second.row_major) return true;
  }
  return false;
}

void FunctionCompiler::Emit(const Node& node, std::span<Operation* const> ops) {
  const dnnl::primitive_desc primitive = node.Make();
  std::vector<Piece::Operand> operands;
  std::string what;
  for (const Operation* op : ops) what += StrCat(what.empty() ? "" : " ", ShortName(op));
  for (const Input& input : node.inputs) {
    const Layout wanted = input.wanted ? *input.wanted : ArgumentOf(primitive, input.name);
    operands.push_back({input.name, wanted, Read(input.value, input.view, wanted)});
  }
  const Layout result = ArgumentOf(primitive, DNNL_ARG_DST);
  const Place to = NewStorage(BytesOf(result));
  operands.push_back({DNNL_ARG_DST, result, to});
  State& state = states_[ops.back()->result(0)];
  if (IsRowMajor(result)) {
    state.row_major = to;
  } else {
    state.others.emplace_back(result, to);
  }
  what += StrCat(" -> ", DimsText(result.get_dims()));
  const std::vector<Part> parts = PartsOf(node, primitive);
  if (parts.size() < 2) return AddStep(primitive, std::move(operands), what);
  AddParts(node, parts, operands);
  lines_ += StrCat(what, "  ", parts.size(), " x ", parts[0].primitive.impl_info_str(), "\n");
}

// Several primitives that threads share, if oneDNN has code for them that takes the same weights.
std::vector<Part> FunctionCompiler::PartsOf(const Node& node,
                                            const dnnl::primitive_desc& whole) const {
  const int64_t count = in_parts_ ? node.NumParts() : 1;
  std::vector<Part> parts;
  if (count < 2) return parts;
  const Layout weights = ArgumentOf(whole, DNNL_ARG_WEIGHTS);
  try {
    for (int64_t i = 0; i < count; ++i) {
      const Rows rows{node.rows * i / count, node.rows * (i + 1) / count};
      parts.push_back(node.MakePart(rows, weights));
      if (!IsFast(parts.back().primitive)) return {};
    }
  } catch (const dnnl::error&) {
    return {};
  }
  return parts;
}

// `operands`: of the whole, its result last.
void FunctionCompiler::AddParts(const Node& node, std::span<const Part> parts,
                                const std::vector<Piece::Operand>& operands) {
  Step step;
  const auto count = static_cast<int64_t>(parts.size());
  const Layout result = operands.back().layout;
  for (int64_t i = 0; i < count; ++i) {
    const Part& part = parts[static_cast<size_t>(i)];
    std::vector<Piece::Operand> own = operands;
    for (Piece::Operand& o : own) {
      const bool follows = o.name >= DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE;
      if (o.name == DNNL_ARG_SRC) {
        o.layout = ArgumentOf(part.primitive, DNNL_ARG_SRC);
        o.offset = part.read;
      } else if (o.name == DNNL_ARG_DST || (follows && o.layout == result)) {
        o.layout = ArgumentOf(part.primitive, DNNL_ARG_DST);
        o.offset = BytesOf(result) / node.rows * (node.rows * i / count);
      }
    }
    AddPiece(step, part.primitive, std::move(own));
  }
  sequence_->steps.push_back(std::move(step));
}

void FunctionCompiler::AddPiece(Step& step, const dnnl::primitive_desc& primitive,
                                std::vector<Piece::Operand> operands) {
  const auto now = static_cast<uint32_t>(sequence_->steps.size());
  const Layout scratch = primitive.scratchpad_desc();
  if (BytesOf(scratch) > 0) {
    operands.push_back({DNNL_ARG_SCRATCHPAD, scratch, NewStorage(BytesOf(scratch))});
  }
  for (const Piece::Operand& o : operands) {
    if (o.place.kind == Kind::kArena) storages_[o.place.index].end = now;
  }
  step.pieces.push_back({dnnl::primitive(primitive), std::move(operands)});
}

void FunctionCompiler::AddStep(const dnnl::primitive_desc& primitive,
                               std::vector<Piece::Operand> operands, const std::string& what) {
  Step step;
  AddPiece(step, primitive, std::move(operands));
  sequence_->steps.push_back(std::move(step));
  lines_ += StrCat(what, "  ", primitive.impl_info_str(), "\n");
}

Place FunctionCompiler::NewStorage(int64_t bytes) {
  const auto step = static_cast<uint32_t>(sequence_->steps.size());
  storages_.push_back({static_cast<size_t>(bytes), step, step});
  result_of_.push_back(kNoResult);
  return {Kind::kArena, static_cast<uint32_t>(storages_.size() - 1)};
}

// `view`: what a row-major tensor of the value is to who reads it.
Place FunctionCompiler::Read(Value value, const Layout& view, const Layout& wanted) {
  if (wanted == view || (IsRowMajor(wanted) && IsRowMajor(view))) return RowMajorOf(value, view);
  State& state = states_.at(value);
  for (const auto& [layout, place] : state.others) {
    if (layout == wanted) return place;
  }
  Place place;
  if (!state.row_major && state.others[0].first.get_dims() == wanted.get_dims()) {
    place = Reorder(state.others[0].second, state.others[0].first, wanted, "reorder");
  } else {
    const bool constant = state.row_major && state.row_major->kind == Kind::kConstant;
    place = Reorder(RowMajorOf(value, view), view, wanted, constant ? "pack" : "reorder");
  }
  states_.at(value).others.emplace_back(wanted, place);
  return place;
}

Place FunctionCompiler::RowMajorOf(Value value, const Layout& view) {
  State& state = states_.at(value);
  if (state.row_major) return *state.row_major;
  const auto [layout, place] = state.others[0];
  LATHE_CHECK(view.get_size() == layout.get_size(), "another tensor");
  state.row_major = Reorder(place, layout, RowMajor(layout.get_dims()), "reorder");
  return *state.row_major;
}

// Constants are reordered now, others in each run.
Place FunctionCompiler::Reorder(Place from, const Layout& is, const Layout& wanted,
                                std::string_view why) {
  const dnnl::primitive_desc primitive =
      Generic(dnnl::reorder::primitive_desc(engine_, is, engine_, wanted, AttributesWith({})));
  if (from.kind != Kind::kConstant) {
    const Place to = NewStorage(BytesOf(wanted));
    AddStep(primitive, {{DNNL_ARG_FROM, is, from}, {DNNL_ARG_TO, wanted, to}},
            StrCat(why, " -> ", DimsText(wanted.get_dims())));
    sequence_->steps.back().moves = true;
    return to;
  }
  const auto bytes = AlignedBytes(BytesOf(wanted));
  const auto scratch = AlignedBytes(BytesOf(primitive.scratchpad_desc()));
  auto* data = const_cast<void*>(sequence_->constants[from.index].data);
  dnnl::memory source(is, engine_, data), target(wanted, engine_, bytes.get());
  dnnl::memory space(primitive.scratchpad_desc(), engine_, scratch.get());
  dnnl::stream stream(engine_);
  dnnl::primitive(primitive).execute(
      stream, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}, {DNNL_ARG_SCRATCHPAD, space}});
  stream.wait();
  return AddConstantBytes(bytes, bytes.get());
}

// Results are written where the caller wants them; what he has already is copied.
void FunctionCompiler::SetResults() {
  const Operation* end = body_.back();
  for (uint32_t i = 0; i < end->num_operands(); ++i) {
    const Value value = end->operand(i);
    const Layout layout = RowMajor(DimsOf(value));
    Place place = RowMajorOf(value, layout);
    if (place.kind != Kind::kArena || result_of_[place.index] != kNoResult) {
      const dnnl::primitive_desc copy = Generic(
          dnnl::reorder::primitive_desc(engine_, layout, engine_, layout, AttributesWith({})));
      const Place to = NewStorage(BytesOf(layout));
      AddStep(copy, {{DNNL_ARG_FROM, layout, place}, {DNNL_ARG_TO, layout, to}}, "copy");
      place = to;
    }
    result_of_[place.index] = i;
  }
}

void FunctionCompiler::PlaceStorages() {
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (result_of_[i] != kNoResult) storages_[i].bytes = 0;
  }
  arena_bytes_ = static_cast<int64_t>(PackBlocks(storages_, 64));
  for (const MemoryBlock& s : storages_) {
    sequence_->offsets.push_back(static_cast<int64_t>(s.offset));
  }
  for (Step& step : sequence_->steps) {
    for (Piece& piece : step.pieces) {
      for (Piece::Operand& o : piece.operands) {
        if (o.place.kind != Kind::kArena || result_of_[o.place.index] == kNoResult) continue;
        o.place = {Kind::kResult, result_of_[o.place.index]};
      }
    }
  }
}

}  // namespace lathe::onednn
