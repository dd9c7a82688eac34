#include "lathe/dialect/nn/conv.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/window.h"
#include "src/lower/pointwise.h"
#include "src/lower/strategies/list.h"
#include "src/lower/tiles.h"

// A convolution and the elementwise operations after it as a matrix product: the weights are the
// rows, the positions of the output the columns. What the columns multiply is gathered from the
// input a panel at a time (zero in the padding), so that the whole matrix never exists; where every
// position reads its own element only, the panel is copied in vectors.
namespace lathe::lower {
namespace {

constexpr int64_t kMaxPanelBytes = 1 << 20;
constexpr int64_t kParallelFlops = 1 << 21;

AnyTensorType TensorOf(Value v) { return v.type().cast<AnyTensorType>(); }

int64_t Product(std::span<const int64_t> values) {
  int64_t product = 1;
  for (const int64_t v : values) product *= v;
  return product;
}

class Conv {
 public:
  Conv(const Block& function, const Machine& machine) : function_(function), machine_(machine) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write(Block* body);

 private:
  std::string FindMaster();
  std::string ShapeRefusal();
  bool ReadsOwnElement() const;
  int64_t width() const { return tile_.vectors * lanes_; }
  void WriteGroup(Value n, Value g);
  void WritePanel(Value n, Value g, Value first, bool partial);
  void CopyPanel(Value n, Value g, Value first);
  void GatherPanel(Value n, Value g, Value first);
  void WritePlaces(Value first, Value count);
  Value Element(Value n, Value channel, Value j, std::span<const int64_t> at_kernel);
  Value Plus(Value v, int64_t offset) { return lb_->Index(LoopBuilder::D0() + offset, v); }
  Value InGroup(Value g, int64_t per_group, Value i);

  const Block& function_;
  const Machine& machine_;
  const Operation* master_ = nullptr;
  std::optional<Pointwise> after_;
  nn::Window window_;
  Dim batch_;
  int64_t groups_ = 1, channels_ = 0, rows_ = 0;  // channels and rows (filters) of one group
  ElementType element_ = ElementType::kUndefined;
  int64_t lanes_ = 1;
  Tile tile_{1, 1};
  bool parallel_ = false;

  // While writing.
  std::optional<LoopBuilder> lb_;
  Value input_, weights_, bias_, panel_;
  std::vector<Value> places_;  // per spatial dim, where each column of the panel reads first
  std::vector<Value> live_;
};

std::string Conv::FindMaster() {
  for (const Operation& op : function_) {
    if (op.name() != nn::ConvOp::kName) continue;
    if (master_ != nullptr) return "there are two convolutions";
    master_ = &op;
  }
  if (master_ == nullptr) return "there is no convolution";
  for (size_t i = 0; i < master_->num_operands(); ++i) {
    const Value v = master_->operand(i);
    if (v && !v.is_block_argument()) return "an operand is computed in the same function";
  }
  return "";
}

std::string Conv::Refusal() {
  if (std::string why = FindMaster(); !why.empty()) return why;
  if (std::string why = ShapeRefusal(); !why.empty()) return why;
  after_.emplace(function_, master_, machine_);
  if (std::string why = after_->Refusal(); !why.empty()) return why;
  if (!std::ranges::equal(TensorOf(master_->result(0)).dims(), after_->dims())) {
    return "the result is broadcast further";
  }
  std::vector<std::vector<size_t>> axes{{0}, {1}, {}};
  for (size_t a = 2; a < after_->dims().size(); ++a) axes.back().push_back(a);
  return after_->SetGroups(std::move(axes)) ? "" : "the positions can not be walked as one";
}

std::string Conv::ShapeRefusal() {
  const auto x = TensorOf(master_->operand(0)), w = TensorOf(master_->operand(1));
  const nn::ConvOp op(const_cast<Operation*>(master_));
  element_ = x.element();
  if (op.layout().value_or("NCHW") != "NCHW") return "the channels are last";
  if (element_ != ElementType::kF32 && element_ != ElementType::kF64) {
    return StrCat("elements are ", Name(element_));
  }
  if (!x.has_rank() || !w.is_static()) return "the weights are of symbolic shape";
  std::vector<int64_t> in, kernel;
  for (size_t a = 2; a < x.rank(); ++a) {
    if (!x.dims()[a].is_constant())
      return StrCat("extent ", x.dims()[a].ToString(), " is symbolic");
    in.push_back(x.dims()[a].value());
    kernel.push_back(w.dims()[a].value());
  }
  batch_ = x.dims()[0];
  window_ = nn::ResolveWindow(nn::WindowOf(op), in, kernel);
  groups_ = op.group();
  channels_ = w.dims()[1].value();
  rows_ = w.dims()[0].value() / groups_;
  lanes_ = machine_.lanes(element_);
  const int64_t positions = Product(window_.out), depth = channels_ * Product(kernel);
  tile_ = PickTile(rows_, positions, lanes_, machine_.vector_registers, 0);
  const int64_t bytes = depth * width() * BitWidth(element_) / 8;
  if (bytes > kMaxPanelBytes)
    return StrCat("a panel of ", HumanBytes(static_cast<uint64_t>(bytes)), " is too large");
  if (positions == 0 || depth == 0) return "there is nothing to compute";
  const Dim work = batch_ * (positions * depth * rows_ * groups_);
  parallel_ = !work.is_constant() || work.value() > kParallelFlops;
  return "";
}

bool Conv::ReadsOwnElement() const {
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::ranges::all_of(values, [&](int64_t v) { return v == wanted; });
  };
  return all(window_.kernel, 1) && all(window_.strides, 1) && all(window_.begins, 0) &&
         all(window_.ends, 0);
}

// ---- writing ----

void Conv::Write(Block* body) {
  lb_.emplace(body);
  after_->Open(*lb_, *body);
  const auto argument = [&](size_t i) {
    const Value v = i < master_->num_operands() ? master_->operand(i) : Value();
    return v ? body->argument(v.index()) : Value();
  };
  const int64_t depth = channels_ * Product(window_.kernel);
  input_ = argument(0);
  weights_ =
      nn::ViewReshapeOp::Create(lb_->b(), argument(1), {.shape = {rows_ * groups_, depth}}).y();
  bias_ = argument(2);
  if (ReadsOwnElement()) {
    const int64_t batch = batch_.is_constant() ? batch_.value() : -1;
    const std::vector<int64_t> shape{batch, channels_ * groups_, Product(window_.in)};
    input_ = nn::ViewReshapeOp::Create(lb_->b(), input_, {.shape = shape}).y();
  }
  lb_->For(batch_, parallel_,
           [&](Value n) { lb_->For(groups_, parallel_, [&](Value g) { WriteGroup(n, g); }); });
  after_->Close(*lb_);
}

void Conv::WriteGroup(Value n, Value g) {
  const int64_t positions = Product(window_.out);
  lb_->For(positions / width(), parallel_,
           [&](Value p) { WritePanel(n, g, lb_->Index(LoopBuilder::D0() * width(), p), false); });
  if (positions % width() == 0) return;
  WritePanel(n, g, lb_->Int(positions / width() * width()), true);
}

Value Conv::InGroup(Value g, int64_t per_group, Value i) {
  const Value both[] = {g, i};
  return lb_->Index(LoopBuilder::D0() * per_group + LoopBuilder::D1(), both);
}

void Conv::WritePanel(Value n, Value g, Value first, bool partial) {
  const int64_t positions = Product(window_.out);
  live_.assign(static_cast<size_t>(tile_.vectors), Value());
  for (int64_t v = 0; partial && v < tile_.vectors; ++v) {
    const int64_t left = positions % width() - v * lanes_;
    live_[static_cast<size_t>(v)] = lb_->Int(std::clamp<int64_t>(left, 0, lanes_));
  }
  const int64_t depth = channels_ * Product(window_.kernel);
  panel_ =
      lb_->Alloc(VTensorType::Get(lb_->context(), SymShape({Dim(depth), Dim(width())}), element_));
  if (ReadsOwnElement()) {
    CopyPanel(n, g, first);
  } else {
    WritePlaces(first, lb_->Int(partial ? positions % width() : width()));
    GatherPanel(n, g, lb_->Int(partial ? positions % width() : width()));
  }
  PanelProduct product(*lb_, machine_, element_, tile_);
  product.left = [&](Value row, Value k) {
    const Value at[] = {InGroup(g, rows_, row), k};
    return lb_->Load(weights_, at);
  };
  product.right = [&](Value k, int64_t v) {
    const Value at[] = {k, lb_->Int(v * lanes_)};
    return lb_->Load(panel_, at, lanes_);
  };
  if (bias_) {
    product.initial = [&](Value row) {
      const Value at[] = {InGroup(g, rows_, row)};
      return lb_->Load(bias_, at);
    };
  }
  product.finish = [&](Value row, int64_t v, Value sum) {
    after_->Store(*lb_, {n, InGroup(g, rows_, row), Plus(first, v * lanes_)}, lanes_,
                  live_[static_cast<size_t>(v)], sum);
  };
  product.Write(rows_, depth);
}

void Conv::CopyPanel(Value n, Value g, Value first) {
  lb_->For(channels_, false, [&](Value c) {
    for (int64_t v = 0; v < tile_.vectors; ++v) {
      const Value from[] = {n, InGroup(g, channels_, c), Plus(first, v * lanes_)};
      const Value to[] = {c, lb_->Int(v * lanes_)};
      lb_->Store(panel_, lb_->Load(input_, from, lanes_, live_[static_cast<size_t>(v)]), to);
    }
  });
}

// For each column of the panel and each spatial dim: position * stride, in the padded input.
void Conv::WritePlaces(Value first, Value count) {
  places_.clear();
  const Type type = VTensorType::Get(lb_->context(), SymShape({Dim(width())}), ElementType::kI64);
  for (size_t a = 0; a < window_.rank(); ++a)
    places_.push_back(lb_->Alloc(type.cast<AnyTensorType>()));
  lb_->ForValue(count, [&](Value j) {
    const Value both[] = {first, j};
    const Dim position = LoopBuilder::D0() + LoopBuilder::D1();
    int64_t inner = 1;
    for (size_t a = window_.rank(); a-- > 0;) {
      const Dim index = Mod(FloorDiv(position, inner), window_.out[a]);
      const Value place = lb_->Index(index * window_.strides[a], both);
      lb_->Store(places_[a], place, {&j, 1});
      inner *= window_.out[a];
    }
  });
}

// What column j reads at one place of the kernel: zero in the padding.
Value Conv::Element(Value n, Value channel, Value j, std::span<const int64_t> at_kernel) {
  std::vector<Value> at{n, channel};
  Value inside;
  for (size_t a = 0; a < window_.rank(); ++a) {
    const Value place = Plus(lb_->Load(places_[a], {&j, 1}), at_kernel[a] * window_.dilations[a]);
    const int64_t begin = window_.begins[a], last = window_.in[a] - 1;
    at.push_back(lb_->Index(Max(Min(LoopBuilder::D0() - begin, last), 0), place));
    if (begin == 0 && window_.ends[a] == 0) continue;
    const Value fits = nn::EqualOp::Create(lb_->b(), place, Plus(at.back(), begin)).c();
    inside = inside ? nn::AndOp::Create(lb_->b(), inside, fits).c() : fits;
  }
  const Value element = lb_->Load(input_, at);
  if (!inside) return element;
  return nn::WhereOp::Create(lb_->b(), inside, element, lb_->Splat(element_, 0)).output();
}

void Conv::GatherPanel(Value n, Value g, Value count) {
  const int64_t places = Product(window_.kernel);
  lb_->For(channels_, false, [&](Value c) {
    const Value channel = InGroup(g, channels_, c);
    std::vector<int64_t> at(window_.rank(), 0);
    for (int64_t k = 0; k < places; ++k) {
      int64_t rest = k;
      for (size_t a = window_.rank(); a-- > 0; rest /= window_.kernel[a])
        at[a] = rest % window_.kernel[a];
      lb_->ForValue(count, [&](Value j) {
        const Value to[] = {lb_->Index(LoopBuilder::D0() * places + k, c), j};
        lb_->Store(panel_, Element(n, channel, j, at), to);
      });
    }
  });
}

}  // namespace

bool LowerConv(Lowering& l) {
  Conv lowering(l.function, l.machine);
  l.why = lowering.Refusal();
  if (!l.why.empty()) return false;
  lowering.Write(l.body);
  return true;
}

}  // namespace lathe::lower
