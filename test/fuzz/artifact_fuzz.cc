// Any bytes are the graph and, behind a zero byte, the library of a compiled program, or refused.
// What is taken runs: kernels that do nothing, copies within their memory.
#include <algorithm>
#include <cstring>

#include "lathe/runtime/artifacts.h"
#include "lathe/support/error.h"
#include "src/runtime/graph_format.h"
#include "src/runtime/shared_library.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kExtent = 3;  // of symbols
constexpr int64_t kMostElements = 1 << 12;

std::shared_ptr<Buffer> BufferOf(std::string_view bytes) {
  auto buffer = Buffer::Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer->mutable_data(), bytes.data(), bytes.size());
  return buffer;
}

// Of a graph that comes alone.
std::string GoodLibrary() {
  PlanCode code{"test", {"fast"}, "not really code", {0, 4}};
  return WriteSharedLibrary({std::move(code), {"fused_twice", "fused_add"}});
}

// Nothing if it has many elements.
std::optional<Tensor> SomeTensor(ElementType type, const std::vector<Dim>& dims) {
  Shape shape;
  int64_t elements = 1;
  for (const Dim& dim : dims) {
    const auto extent = dim.Evaluate([](std::string_view) { return std::optional(kExtent); });
    if (extent.value_or(-1) < 0 || *extent > kMostElements) return std::nullopt;
    shape.push_back(*extent);
    elements = std::min(elements * *extent, kMostElements + 1);
  }
  if (elements > kMostElements) return std::nullopt;
  return Tensor(type, std::move(shape));
}

void Run(const Executor& executor) {
  const Plan& plan = executor.plan();
  NamedTensors inputs;
  for (const PlanPort& port : plan.inputs) {
    const PlanValue& value = plan.values[port.value];
    auto tensor = SomeTensor(value.element, value.dims);
    if (!tensor) return;
    inputs.emplace_back(port.name, *std::move(tensor));
  }
  (void)executor.Run(inputs);
}

void Check(Artifacts artifacts) {
  const graph::Content content = graph::Read(artifacts.graph);
  for (size_t i = 0; i < content.parameters.size(); ++i) {
    auto tensor = SomeTensor(content.parameters[i].element, content.parameters[i].dims);
    if (!tensor) return;
    artifacts.parameters.emplace_back(content.plan.constant_names[i], *std::move(tensor));
  }
  const auto plan = PlanOf(artifacts);
  const auto nothing = [](const KernelBuffer*, KernelTeam*) {};
  Run(Executor(std::vector<Executor::Kernel>(plan->code.entries.size(), nothing), plan,
               {.threads = 1}));
}

// What throws an Error is refused; one of ours is a finding.
template <class F>
void Try(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
  }
}

}  // namespace
}  // namespace lathe::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe::runtime;  // NOLINT
  static const std::string good_library = GoodLibrary();
  const lathe::AllocationLimit limit(size_t{1} << 26);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\0');
  const bool has_library = end != std::string_view::npos;
  const std::string_view library = has_library ? bytes.substr(end + 1) : good_library;
  // Each by itself too, since what refuses one hides the other.
  if (has_library) Try([&] { (void)ReadSharedLibrary(std::as_bytes(std::span(library))); });
  Try([&] { Check({std::string(bytes.substr(0, end)), BufferOf(library), {}}); });
  return 0;
}
