#include <algorithm>
#include <bit>

#include "lathe/driver/executable.h"
#include "lathe/lower/lower_function.h"
#include "lathe/support/float_types.h"
#include "test/unit/codegen/kernel_util.h"

namespace lathe::codegen {
namespace {

class ImageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  const Block* Kernel(const std::string& text) {
    program_.emplace(ParseProgram(context_, text, {.file_locations = false}));
    return FirstFunction(*program_)->region(0).front();
  }

  // y = op(x), lowered for the target.
  const Block* Elementwise(const std::string& op, const std::string& from, const std::string& to,
                           const Target& target) {
    program_.emplace(
        ParseProgram(context_,
                     StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: v_tensor<", from,
                            ">):\n%y = ", op, " : (v_tensor<", from, ">) -> v_tensor<", to,
                            ">\nbuiltin.return(%y) : (v_tensor<", to, ">) -> ()\n})\n}"),
                     {.file_locations = false}));
    Operation* function = FirstFunction(*program_);
    const lower::Lowered lowered =
        lower::LowerFunction(function, MachineOf(target), {}, {.strict = true});
    EXPECT_TRUE(lowered.done) << lowered.why_not;
    return function->region(0).front();
  }

  IrContext context_;
  std::optional<Program> program_;
};

// A constant pool, and a parallel loop whose body is a function of its own.
TEST_F(ImageTest, RunsWhereverItLies) {
  const Tensor x = RandomTensor(ElementType::kF32, {300, 171}, 3);
  Tensor wanted;
  for (const Target* target : RunnableTargets()) {
    const KernelSource source{
        "k", Elementwise("nn.tanh(%x)", "[300, 171], f32", "[300, 171], f32", *target)};
    const CodeImage image = CodeGenerator::Get().EmitImage({&source, 1}, *target);
    ASSERT_EQ(image.entries.size(), 1U);
    EXPECT_EQ(image.entries[0].name, "k");
    CodeImage both{std::string(100, '\xcc'), {}};
    both.Append(image);
    both.Append(image);
    const ExecutableMemory memory(both.bytes);
    std::vector<Tensor> results;
    for (const CodeImage::Entry& entry : both.entries) {
      EXPECT_EQ(entry.offset % CodeImage::kAlignment, image.entries[0].offset);
      results.push_back(ZeroLike(x));
      const KernelBuffer buffers[] = {{const_cast<std::byte*>(x.raw()), nullptr},
                                      {results.back().mutable_raw(), nullptr}};
      runtime::WorkerTeam team(2);
      memory.FunctionAt<KernelFunction>(entry.offset)(buffers, &team);
    }
    EXPECT_TRUE(AllClose(results[0], results[1], 0, 0));
    EXPECT_NEAR(results[0].data<float>()[7], std::tanh(x.data<float>()[7]), 1e-6);
  }
}

TEST_F(ImageTest, TheSameSourceGivesTheSameBytes) {
  for (const Target* target : RunnableTargets()) {
    const KernelSource source{"k",
                              Elementwise("nn.tanh(%x)", "[3, 7], f32", "[3, 7], f32", *target)};
    EXPECT_EQ(CodeGenerator::Get().EmitImage({&source, 1}, *target).bytes,
              CodeGenerator::Get().EmitImage({&source, 1}, *target).bytes);
  }
}

TEST_F(ImageTest, CodeForAnotherProcessor) {
  const Target& arm = Target::Named("aarch64");
  const KernelSource source{"k", Elementwise("nn.tanh(%x)", "[64], f32", "[64], f32", arm)};
  const std::string text = CodeGenerator::Get().EmitText({&source, 1}, arm, CodeText::kAssembly);
  EXPECT_NE(text.find("fmla\tv"), std::string::npos) << text;
  const std::string object = CodeGenerator::Get().EmitObject({&source, 1}, arm);
  ASSERT_GT(object.size(), 20U);
  EXPECT_EQ(object.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(object[18], '\xb7');  // EM_AARCH64
  try {
    CodeGenerator::Get().EmitImage({&source, 1}, arm);
    ADD_FAILURE() << "an image for aarch64";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "codegen/image");
  }
}

// Every f16 as f32; every f16 and what lies between two of them back.
TEST_F(ImageTest, HalvesRoundOnce) {
  std::vector<float> floats;
  std::vector<double> doubles;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (const float x : {static_cast<float>(Half::FromBits(static_cast<uint16_t>(bits))),
                          static_cast<float>(BFloat16::FromBits(static_cast<uint16_t>(bits)))}) {
      const uint32_t near = std::bit_cast<uint32_t>(x);
      for (const uint32_t step : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U}) {
        floats.push_back(std::bit_cast<float>(near + step));
        doubles.push_back(floats.back());
        doubles.push_back(std::bit_cast<double>(std::bit_cast<uint64_t>(doubles.back()) + 1));
      }
    }
  }
  const auto n = static_cast<int64_t>(floats.size()), m = static_cast<int64_t>(doubles.size());
  const Tensor of_floats = Tensor::Of<float>({n}, floats);
  const Tensor of_doubles = Tensor::Of<double>({m}, doubles);
  for (const Target* target : RunnableTargets()) {
    for (const ElementType half : {ElementType::kF16, ElementType::kBF16}) {
      for (const Tensor& x : {of_floats, of_doubles}) {
        const std::string dims = StrCat("[", x.num_elements(), "], ");
        const std::string from = StrCat(dims, Name(x.element_type())),
                          to = StrCat(dims, Name(half));
        SCOPED_TRACE(StrCat(from, " to ", to, ", ", target->name));
        const Tensor wanted = Cast(x, half);
        const CompiledKernel narrow(
            Elementwise(StrCat("nn.cast(%x) {to = ", Name(half), "}"), from, to, *target), *target);
        const Closeness close = AllClose(narrow.Call({x}, {ZeroLike(wanted)})[0], wanted, 0, 0);
        EXPECT_TRUE(close) << close.description;
        const Tensor back = Cast(wanted, ElementType::kF32);
        const CompiledKernel widen(
            Elementwise("nn.cast(%x) {to = f32}", to, StrCat(dims, "f32"), *target), *target);
        const Closeness same = AllClose(widen.Call({wanted}, {ZeroLike(back)})[0], back, 0, 0);
        EXPECT_TRUE(same) << same.description;
      }
    }
  }
}

// Copies through scratch memory that lies in no parallel loop and is no result.
std::string ThroughScratch(const std::string& n, const std::string& sizes) {
  const std::string t = StrCat("tensor<[", n, "], f32>"), i64 = "v_tensor<[], i64>";
  return StrCat(
      "program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: v_", t,
      "):\n%n = loop.dim(%x) {axis = 0} : (v_", t, ") -> ", i64, "\n%o = loop.alloc(", sizes,
      ") : (", sizes.empty() ? "" : i64, ") -> ", t, "\nloop.for() {extent = 1} ({\n^(%u: ", i64,
      "):\n%m = loop.alloc(", sizes, ") : (", sizes.empty() ? "" : i64, ") -> ", t,
      "\nloop.for(%n) {parallel = true} ({\n^(%i: ", i64, "):\n%a = loop.load(%x, none, %i) : (v_",
      t, ", none, ", i64, ") -> v_tensor<[], f32>\n%b = loop.store_(%m, %a, none, %i) : (", t,
      ", v_tensor<[], f32>, none, ", i64, ") -> ", t, "\ncf.yield()\n}) : (", i64,
      ") -> ()\nloop.for(%n) {parallel = true} ({\n^(%i: ", i64,
      "):\n%a = loop.load(%m, none, %i) : (", t, ", none, ", i64,
      ") -> v_tensor<[], f32>\n%b = loop.store_(%o, %a, none, %i) : (", t,
      ", v_tensor<[], f32>, none, ", i64, ") -> ", t, "\ncf.yield()\n}) : (", i64,
      ") -> ()\ncf.yield()\n})\n%v = builtin.to_vtensor(%o) : (", t, ") -> v_", t,
      "\nbuiltin.return(%v) : (v_", t, ") -> ()\n})\n}");
}

TEST_F(ImageTest, LargeAndSymbolicScratchIsTheCallers) {
  const Target& target = Target::Host();
  for (const auto& [n, sizes, bytes] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"100", "", ""}, {"5000000", "", "20000000"}, {"N", "%n", "4*N"}}) {
    const CompiledKernel kernel(Kernel(ThroughScratch(n, sizes)), target);
    ASSERT_EQ(kernel.kernel().workspaces.size(), bytes.empty() ? 0U : 1U);
    if (!bytes.empty()) {
      EXPECT_EQ(kernel.kernel().workspaces[0].ToString(), bytes);
    }
    const Tensor x = RandomTensor(ElementType::kF32, {n == "N" ? int64_t{777} : std::stoll(n)}, 5);
    runtime::WorkerTeam team(2);
    EXPECT_TRUE(AllClose(kernel.Call({x}, {ZeroLike(x)}, &team)[0], x, 0, 0));
  }
}

}  // namespace
}  // namespace lathe::codegen
