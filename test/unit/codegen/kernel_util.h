#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lathe/codegen/code_generator.h"
#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/runtime/kernel_error.h"
#include "lathe/runtime/worker_team.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "test/unit/runnable_targets.h"

namespace lathe::codegen {

/// Of the status that a kernel left: whether no access was out of bounds, which is a failure.
inline bool ExpectInBounds(const KernelBuffer& buffer) {
  const auto& status = *static_cast<const KernelStatus*>(buffer.data);
  if (status.failed != KernelStatus::kAccess) return true;
  ADD_FAILURE() << runtime::KernelError(status, "a kernel", "").Render();
  return false;
}

/// Compiles one kernel and calls it on tensors; outputs are made like the given ones. The first
/// call for shapes is made with checked accesses, too: one that is out of bounds is a failure,
/// other bits are as well.
class CompiledKernel {
 public:
  using Pairs = std::vector<std::pair<size_t, size_t>>;

  CompiledKernel(const Block* body, const Target& target, const Pairs& in_place = {})
      : types_(ArgumentTypes(*body)) {
    KernelSource source{kName, body, in_place};
    library_ = CodeGenerator::Get().Compile({&source, 1}, target);
    source.check_accesses = true;
    checked_ = CodeGenerator::Get().Compile({&source, 1}, target);
  }
  std::vector<Tensor> Call(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                           KernelTeam* team = nullptr) const {
    return CallInPlace(std::move(inputs), std::move(outputs), {}, team);
  }
  // The same with input and output of each pair in the same memory, which holds the input.
  std::vector<Tensor> CallInPlace(const std::vector<Tensor>& inputs, std::vector<Tensor> outputs,
                                  const Pairs& pairs, KernelTeam* team) const {
    std::vector<Shape> shapes;
    for (const Tensor& t : inputs) shapes.push_back(t.shape());
    if (shapes == checked_shapes_) {
      Run(*library_, inputs, outputs, pairs, team);
      return outputs;
    }
    checked_shapes_ = shapes;
    std::vector<Tensor> checked = outputs;
    if (!Run(*checked_, inputs, checked, pairs, team)) return checked;
    Run(*library_, inputs, outputs, pairs, team);
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(checked[i].bytes(), outputs[i].bytes()))
          << "with checked accesses output " << i << " has other bits";
    }
    return outputs;
  }
  /// What each four bytes of its workspaces are before it runs.
  void FillMemory(uint32_t bits) { memory_ = bits; }
  const CodeImage::Entry& kernel() const { return library_->image().Find(kName); }

 private:
  static constexpr const char* kName = "k";

  // Whether all accesses are within bounds.
  bool Run(const KernelLibrary& library, const std::vector<Tensor>& inputs,
           std::vector<Tensor>& outputs, const Pairs& pairs, KernelTeam* team) const {
    std::vector<KernelBuffer> buffers;
    std::vector<Shape> shapes;
    for (const Tensor& t : inputs) {
      buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
      shapes.push_back(t.shape());
    }
    for (Tensor& t : outputs) buffers.push_back({t.mutable_raw(), t.shape().data()});
    for (const auto& [input, output] : pairs) {
      void* shared = buffers[inputs.size() + output].data;
      std::ranges::copy(inputs[input].bytes(), static_cast<std::byte*>(shared));
      buffers[input].data = shared;
    }
    const CodeImage::Entry& entry = library.image().Find(kName);
    Workspaces scratch(entry.workspaces, types_, shapes);
    const size_t first = buffers.size();
    scratch.AddTo(buffers);
    for (size_t i = first; i < first + entry.workspaces.size(); ++i) {
      auto* bytes = static_cast<std::byte*>(buffers[i].data);
      for (int64_t at = 0; at < buffers[i].shape[0]; at += 4) {
        std::memcpy(bytes + at, &memory_,
                    static_cast<size_t>(std::min<int64_t>(4, buffers[i].shape[0] - at)));
      }
    }
    library.Find(kName)(buffers.data(), team);
    return !entry.checks || ExpectInBounds(buffers.back());
  }

  uint32_t memory_ = 0x80808080;
  std::vector<AnyTensorType> types_;
  std::unique_ptr<KernelLibrary> library_, checked_;
  mutable std::optional<std::vector<Shape>> checked_shapes_;  // of the last checked call
};

/// For SetUp: skips the test where Lathe was built without LLVM.
inline void NeedCodeGenerator() {
  try {
    CodeGenerator::Get();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

/// The first function of a program.
inline Operation* FirstFunction(Program& program) {
  for (Operation& op : *program.block()) {
    if (op.name() == "builtin.func") return &op;
  }
  return nullptr;
}

}  // namespace lathe::codegen
