#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lathe/runtime/executor.h"

namespace lathe::runtime::testing {

using Place = PlanValue::Place;

/// Writes plans of f32 tensors for tests.
class PlanMaker {
 public:
  uint32_t Value(Place place, uint32_t index, std::vector<Dim> dims, uint64_t offset = 0) {
    plan.values.push_back({ElementType::kF32, std::move(dims), place, index, offset});
    return static_cast<uint32_t>(plan.values.size() - 1);
  }
  uint32_t Input(const std::string& name, std::vector<Dim> dims) {
    const auto index = static_cast<uint32_t>(plan.inputs.size());
    for (uint32_t a = 0; a < dims.size(); ++a) {
      if (dims[a].is_symbol()) Symbol(std::string(dims[a].symbol_name()), index, a);
    }
    plan.inputs.push_back({name, Value(Place::kInput, index, std::move(dims))});
    return plan.inputs.back().value;
  }
  uint32_t Output(const std::string& name, std::vector<Dim> dims) {
    const auto index = static_cast<uint32_t>(plan.outputs.size());
    plan.outputs.push_back({name, Value(Place::kOutput, index, std::move(dims))});
    return plan.outputs.back().value;
  }
  uint32_t Constant(Tensor tensor) {
    std::vector<Dim> dims(tensor.shape().begin(), tensor.shape().end());
    plan.constants.push_back(std::move(tensor));
    return Value(Place::kConstant, static_cast<uint32_t>(plan.constants.size() - 1),
                 std::move(dims));
  }
  /// A value with a storage of its own.
  uint32_t Arena(std::vector<Dim> dims, uint32_t begin, uint32_t end, uint64_t offset = 0) {
    Dim bytes = 4;
    for (const Dim& d : dims) bytes *= d;
    plan.storages.push_back({bytes, begin, end, offset});
    return Value(Place::kArena, static_cast<uint32_t>(plan.storages.size() - 1), std::move(dims));
  }
  /// The last value is written.
  void Step(uint32_t kernel, std::vector<uint32_t> values, const std::string& label) {
    const auto reads = static_cast<uint32_t>(values.size() - 1);
    plan.steps.push_back({kernel, kNone, std::move(values), reads, label, "node '" + label + "'"});
  }
  std::shared_ptr<const Plan> Done() { return std::make_shared<Plan>(std::move(plan)); }

  Plan plan;

 private:
  void Symbol(const std::string& name, uint32_t input, uint32_t axis) {
    for (const PlanSymbol& s : plan.symbols) {
      if (s.name == name) return;
    }
    plan.symbols.push_back({name, input, axis});
  }
};

/// What kernels of tests work on: [rows, columns] of f32.
struct Rows {
  explicit Rows(const KernelBuffer& b)
      : data(static_cast<float*>(b.data)), rows(b.shape[0]), columns(b.shape[1]) {}
  float* data;
  int64_t rows, columns;
};

/// out = 2 x, by rows in parallel.
inline void Twice(const KernelBuffer* buffers, KernelTeam* team) {
  const KernelTeam::Body body = [](int64_t begin, int64_t end, void* captured) {
    const auto* b = static_cast<const KernelBuffer*>(captured);
    const Rows x(b[0]), out(b[1]);
    for (int64_t i = begin * x.columns; i < end * x.columns; ++i) out.data[i] = 2 * x.data[i];
  };
  const int64_t rows = Rows(buffers[0]).rows;
  auto* captured = const_cast<KernelBuffer*>(buffers);
  if (team == nullptr) return body(0, rows, captured);
  team->run(team, rows, body, captured);
}

/// out = x + y, where y is one row.
inline void AddRow(const KernelBuffer* buffers, KernelTeam*) {
  const Rows x(buffers[0]), out(buffers[2]);
  const auto* y = static_cast<const float*>(buffers[1].data);
  for (int64_t i = 0; i < x.rows * x.columns; ++i) out.data[i] = x.data[i] + y[i % x.columns];
}

inline std::vector<Executor::Kernel> TestKernels() { return {&Twice, &AddRow}; }

inline constexpr int64_t kColumns = 5;

/// z[N, 5] = 2 * (2 * x[N, 5]) + (1, 2, 3, 4, 5), by way of the arena.
inline std::shared_ptr<const Plan> AffinePlan(const Dim& rows = Dim::Symbol("N")) {
  PlanMaker m;
  const uint32_t x = m.Input("x", {rows, kColumns});
  const uint32_t z = m.Output("z", {rows, kColumns});
  const uint32_t c = m.Constant(Tensor::Of<float>({kColumns}, {1, 2, 3, 4, 5}));
  const uint64_t room = rows.is_constant() ? (4 * 5 * rows.value() + 63) / 64 * 64 : 0;
  const uint32_t a = m.Arena({rows, kColumns}, 0, 1);
  const uint32_t b = m.Arena({rows, kColumns}, 1, 2, room);
  m.Step(0, {x, a}, "twice");
  m.Step(0, {a, b}, "twice again");
  m.Step(1, {b, c, z}, "add");
  return m.Done();
}

/// What a plan on N relies on, as one that joins matrices does.
inline PlanConstraint AtMostFortyRows() {
  return {.condition = SizeCondition::AtLeast(40, Dim::Symbol("N")),
          .id = "shape/concat",
          .message = "nn.concat: more than 40 rows",
          .origin = "node 'join'",
          .hint = "take less",
          .notes = {"inputs : v_tensor<[N, 5], f32>"}};
}

/// A kernel out[N] = 2 * x[N] in machine code of any x86-64 processor.
inline PlanCode DoubleCode() {
  const std::string code(
      "\x48\x8b\x07"              // mov rax, [rdi]
      "\x48\x8b\x4f\x08"          // mov rcx, [rdi + 8]
      "\x48\x8b\x09"              // mov rcx, [rcx]
      "\x48\x8b\x57\x10"          // mov rdx, [rdi + 16]
      "\x48\x85\xc9"              // next: test rcx, rcx
      "\x74\x15"                  // jz end
      "\xf3\x0f\x10\x44\x88\xfc"  // movss xmm0, [rax + rcx * 4 - 4]
      "\xf3\x0f\x58\xc0"          // addss xmm0, xmm0
      "\xf3\x0f\x11\x44\x8a\xfc"  // movss [rdx + rcx * 4 - 4], xmm0
      "\x48\xff\xc9"              // dec rcx
      "\xeb\xe6"                  // jmp next
      "\xc3",                     // end: ret
      41);
  return {"x86-64", {"sse2"}, code, {0}};
}

/// y[N] = 2 * x[N] by machine code.
inline std::shared_ptr<const Plan> DoublePlan() {
  PlanMaker m;
  const uint32_t x = m.Input("x", {Dim::Symbol("N")});
  m.Step(0, {x, m.Output("y", {Dim::Symbol("N")})}, "double");
  m.plan.code = DoubleCode();
  return m.Done();
}

/// y[N] = 2^4 * x[N] by machine code, by way of the arena.
inline std::shared_ptr<const Plan> DoublesPlan() {
  const Dim n = Dim::Symbol("N");
  PlanMaker m;
  uint32_t last = m.Input("x", {n});
  for (uint32_t step = 0; step < 3; ++step) {
    const uint32_t next = m.Arena({n}, step, step + 1);
    m.Step(0, {last, next}, "double");
    last = next;
  }
  m.Step(0, {last, m.Output("y", {n})}, "double");
  m.plan.code = DoubleCode();
  return m.Done();
}

inline Tensor Ramp(int64_t rows, float from = 0) {
  Tensor t(ElementType::kF32, {rows, kColumns});
  for (float& v : t.mutable_data<float>()) v = from++;
  return t;
}

inline Tensor AffineOf(const Tensor& x) {
  Tensor t = x.Clone();
  int64_t i = 0;
  for (float& v : t.mutable_data<float>()) v = 4 * v + static_cast<float>(i++ % kColumns + 1);
  return t;
}

}  // namespace lathe::runtime::testing
