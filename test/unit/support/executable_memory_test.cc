#include "lathe/support/executable_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "lathe/support/error.h"

namespace lathe {
namespace {

#if defined(__x86_64__)
constexpr std::string_view kReturn42("\x90\xb8\x2a\x00\x00\x00\xc3", 7);  // nop; mov eax, 42; ret
#elif defined(__aarch64__)
constexpr std::string_view kReturn42("\x40\x05\x80\x52\xc0\x03\x5f\xd6", 8);  // mov w0, 42; ret
#endif

TEST(ExecutableMemoryTest, RunsACopy) {
  std::string code(kReturn42);
  ExecutableMemory memory(code);
  code.assign(code.size(), '\0');
  EXPECT_EQ(memory.size(), kReturn42.size());
  EXPECT_EQ(memory.FunctionAt<int (*)()>(0)(), 42);
#if defined(__x86_64__)
  EXPECT_EQ(memory.FunctionAt<int (*)()>(1)(), 42);
#endif
  ExecutableMemory moved(std::move(memory));
  EXPECT_EQ(moved.FunctionAt<int (*)()>(0)(), 42);
  memory = std::move(moved);
  EXPECT_EQ(memory.FunctionAt<int (*)()>(0)(), 42);
}

TEST(ExecutableMemoryTest, IsNotWritable) {
  const ExecutableMemory memory(kReturn42);
  EXPECT_DEATH(*memory.FunctionAt<volatile char*>(0) = 0, "");
}

TEST(ExecutableMemoryTest, NothingLiesOutside) {
  const ExecutableMemory memory(kReturn42);
  EXPECT_THROW(static_cast<void>(memory.FunctionAt<int (*)()>(memory.size())), Error);
  EXPECT_THROW(static_cast<void>(ExecutableMemory("").FunctionAt<int (*)()>(0)), Error);
}

}  // namespace
}  // namespace lathe
