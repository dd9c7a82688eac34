#include <algorithm>

#include "lathe/dialect/loop/loop.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/support/text.h"
#include "src/lower/planes.h"
#include "src/lower/pooling.h"
#include "src/lower/strategies/list.h"

// Pools whose one window is the whole plane: vectors of it are combined, then their elements.
namespace lathe::lower {
namespace {

constexpr int64_t kUnrolled = 16;  // vectors
constexpr int64_t kChains = 4;     // of additions that do not wait for one another

class GlobalPool {
 public:
  GlobalPool(Pooling pooling, const Machine& machine)
      : pooling_(std::move(pooling)), machine_(machine) {}

  std::string Refusal();
  void Write(Block* body);

 private:
  Value VectorAt(Value plane, Value at, int64_t live);
  Value OfPlane(Value plane);

  Pooling pooling_;
  const Machine& machine_;
  int64_t size_ = 1, lanes_ = 1;

  // While writing.
  std::optional<LoopBuilder> lb_;
  Value planes_;
};

std::string GlobalPool::Refusal() {
  const AnyTensorType x = pooling_.input();
  std::vector<int64_t> in;
  for (const Dim& dim : x.dims().subspan(2)) {
    if (!dim.is_constant()) return StrCat("extent ", dim.ToString(), " is symbolic");
    in.push_back(dim.value());
    size_ *= dim.value();
  }
  if (size_ == 0) return "there is nothing to compute";
  lanes_ = machine_.lanes(pooling_.element);
  while (lanes_ > 1 && lanes_ > size_) lanes_ /= 2;
  if (pooling_.global) return "";
  if (pooling_.gives_indices()) return "positions are wanted";
  const nn::Window w = nn::ResolveWindow(pooling_.spec, in, *pooling_.spec.kernel_shape);
  for (size_t a = 0; a < w.rank(); ++a) {
    const bool dense = w.dilations[a] == 1 || w.kernel[a] == 1;
    if (w.out[a] != 1 || w.begins[a] != 0 || w.ends[a] != 0 || w.kernel[a] != w.in[a] || !dense) {
      return "the window is not the whole plane";
    }
  }
  return "";
}

void GlobalPool::Write(Block* body) {
  lb_.emplace(body);
  pooling_.after->Open(*lb_, *body);
  const AnyTensorType x = pooling_.input();
  const Dim planes = x.dims()[0] * x.dims()[1];
  const std::vector<int64_t> shape{planes.is_constant() ? planes.value() : -1, size_};
  planes_ = nn::ViewReshapeOp::Create(lb_->b(), body->argument(pooling_.op->operand(0).index()),
                                      {.shape = shape})
                .y();
  ForPlanes(*lb_, x.dims()[0], x.dims()[1], size_ / 4, [&](Value n, Value c, Value plane) {
    std::vector<Value> at{n, c};
    at.resize(x.rank(), lb_->Int(0));
    const Value scale = lb_->Splat(pooling_.element, 1.0 / static_cast<double>(size_));
    pooling_.after->Store(*lb_, at, 0, {}, pooling_.Finished(*lb_, OfPlane(plane), scale));
  });
  pooling_.after->Close(*lb_);
}

Value GlobalPool::VectorAt(Value plane, Value at, int64_t live) {
  const Value index[] = {plane, at};
  const bool partial = live < lanes_;
  Value x = lb_->Load(planes_, index, lanes_, partial ? lb_->Int(live) : Value());
  if (partial && pooling_.neutral() != 0) {
    std::vector<double> mask(static_cast<size_t>(lanes_), 0);
    std::fill_n(mask.begin(), live, 1);
    const Value inside =
        lb_->Constant(Cast(Tensor::Of<double>({lanes_}, mask), ElementType::kBool));
    const Value neutral = lb_->Splat(pooling_.element, pooling_.neutral(), lanes_);
    x = nn::WhereOp::Create(lb_->b(), inside, x, neutral).output();
  }
  return pooling_.Prepared(*lb_, x);
}

Value GlobalPool::OfPlane(Value plane) {
  const int64_t full = size_ / lanes_, chains = std::min(kChains, full);
  const auto vector = [&](Value step, int64_t i, int64_t live) {
    return VectorAt(plane, lb_->Index(LoopBuilder::D0() * (chains * lanes_) + i * lanes_, step),
                    live);
  };
  std::vector<Value> sums;
  for (int64_t i = 0; i < chains; ++i) sums.push_back(vector(lb_->Int(0), i, lanes_));
  const auto step = [&](Value i, std::span<const Value> carried) {
    const Value next = lb_->Index(LoopBuilder::D0() + 1, i);
    std::vector<Value> out;
    for (int64_t v = 0; v < chains; ++v) {
      out.push_back(
          pooling_.Combined(*lb_, carried[static_cast<size_t>(v)], vector(next, v, lanes_)));
    }
    return out;
  };
  const int64_t steps = full / chains - 1;
  if (steps > 0 && full <= kUnrolled) {
    for (int64_t i = 0; i < steps; ++i) sums = step(lb_->Int(i), sums);
  } else if (steps > 0) {
    sums = lb_->For(steps, sums, step);
  }
  const Value zero = lb_->Int(0);
  for (int64_t v = full / chains * chains; v < full; ++v) {
    Value& sum = sums[static_cast<size_t>(v % chains)];
    sum = pooling_.Combined(*lb_, sum, vector(zero, v, lanes_));
  }
  if (size_ % lanes_ != 0) {
    Value& sum = sums.back();
    sum = pooling_.Combined(*lb_, sum, vector(zero, full, size_ % lanes_));
  }
  for (size_t i = 1; i < sums.size(); ++i) sums[0] = pooling_.Combined(*lb_, sums[0], sums[i]);
  if (lanes_ == 1) {
    const Value index[] = {plane, zero};
    return pooling_.Prepared(*lb_, lb_->Load(planes_, index));
  }
  const char* kind = pooling_.kind == Pooling::Kind::kMax ? "max" : "add";
  return loop::ReduceOp::Create(lb_->b(), sums[0], {.kind = kind}).y();
}

}  // namespace

bool LowerPoolGlobal(Lowering& l) {
  auto pooling = Pooling::Find(l.function, l.machine, l.why);
  if (!pooling) return false;
  GlobalPool pool(std::move(*pooling), l.machine);
  l.why = pool.Refusal();
  if (!l.why.empty()) return false;
  pool.Write(l.body);
  return true;
}

}  // namespace lathe::lower
