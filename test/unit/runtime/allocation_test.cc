#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "test/unit/runtime/count_allocations.h"
#include "test/unit/runtime/plan_util.h"
#include "test/unit/sanitized.h"

namespace {
std::atomic<int64_t> allocations{0};
std::atomic<uint64_t> largest{0};
}  // namespace

// Counted for the whole test program; a sanitizer has operators of its own.
#if !defined(LATHE_SANITIZED)
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  uint64_t before = largest.load(std::memory_order_relaxed);
  while (size > before && !largest.compare_exchange_weak(before, size)) {
  }
  return std::malloc(size);
}
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* p = operator new(size, std::nothrow)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace lathe::runtime {

int64_t testing::Allocations() { return allocations.load(); }
uint64_t testing::TakeLargestAllocation() { return largest.exchange(0); }

namespace {

using namespace testing;  // NOLINT: what plans of tests are made of

TEST(AllocationTest, NothingAfterWarmUp) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer allocates by itself";
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 3});
  std::vector<Tensor> inputs, outputs;
  for (const int64_t rows : {7, 1, 30, 0, 12}) {
    inputs.push_back(Ramp(rows));
    outputs.push_back(Ramp(rows));
  }
  const auto run_all = [&] {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const InputView in{ElementType::kF32, inputs[i].raw(), inputs[i].shape()};
      const OutputView out{const_cast<std::byte*>(outputs[i].raw()), outputs[i].byte_size()};
      executor.Run({&in, 1}, {&out, 1});
    }
  };
  run_all();
  const int64_t before = Allocations();
  const size_t heap = mallinfo2().uordblks;
  for (int i = 0; i < 100; ++i) run_all();
  EXPECT_EQ(Allocations(), before);
  EXPECT_EQ(mallinfo2().uordblks, heap);
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(outputs[i], AffineOf(inputs[i]));
}

}  // namespace
}  // namespace lathe::runtime
