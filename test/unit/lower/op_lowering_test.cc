#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "lathe/driver/every_way.h"
#include "lathe/ir/traits.h"
#include "lathe/pass/pass_manager.h"
#include "test/unit/lower/lower_util.h"
#include "test/unit/lower/op_program.h"

// Every op of nn by itself: its samples are lowered and compared with the interpreter. What is not
// lowered stands, with the reason, in op_lowering.txt.
namespace lathe::lower {
namespace {

constexpr uint64_t kSeed = 20;

// One lowered sample.
struct Kernel {
  std::string label;
  Program program;
  Operation* function;
  std::vector<Tensor> inputs, wanted;
  std::vector<std::pair<size_t, size_t>> in_place;
};

constexpr size_t kParts = 4;  // of the ops, tested at once

class OpLoweringTest : public LowerTest, public ::testing::WithParamInterface<size_t> {
 protected:
  OpLoweringTest() : machine_(MachineOf(Target::Host())) {}

  void SetUp() override {
    LowerTest::SetUp();
    sampler_.emplace(context_, lathe::testing::ReadSampleHints(), kSeed);
  }

  // Lowers the sample, or says why it is not; what is wrong is a failure.
  std::string Lower(const OpSample& sample, Declared how) {
    if (!HasTensorsOnly(sample)) return "an operand is not a tensor";
    Program program = ProgramOf(context_, sample, how);
    const NamedValues inputs = InputsOf(program, sample);
    const NamedValues wanted = Interpreter(program, {.seed = kSeed}).Run(inputs);
    const Program source = program.Clone();
    PassManager group;
    group.Add("graph_fuse_partition,graph_fuse_compile");
    group.Run(program);
    Operation* function = codegen::FirstFunction(program);
    if (function == nullptr) return "no kernel computes it";
    const Operation* call = nullptr;
    for (const Operation& op : *program.block()) call = op.name() == "builtin.call" ? &op : call;
    Kernel kernel{sample.label, std::move(program), function, {}, {}, {}};
    for (size_t i = 0; i < call->num_operands(); ++i) {
      const std::string name(
          call->operand(i).defining_op()->attribute("name").cast<StrAttribute>().value());
      for (const auto& [n, value] : inputs) {
        if (n == name) kernel.inputs.push_back(value.tensor());
      }
    }
    for (const auto& [name, value] : wanted) {
      if (!value.is_tensor()) return "a result is not a tensor";
      kernel.wanted.push_back(value.tensor());
    }
    const Lowered lowered = LowerFunction(function, machine_, {}, {.strict = true});
    kernel.in_place = lowered.in_place;
    if (!lowered.done) return InPieces(sample, source, inputs, wanted);
    VerifyOrThrow(kernel.program);
    const NamedValues looped = Interpreter(kernel.program).Run(inputs);
    for (size_t i = 0; i < looped.size(); ++i) {
      Compare(sample.label + ", loops", looped[i].second.tensor(), kernel.wanted[i]);
    }
    kernels_.push_back(std::move(kernel));
    return "";
  }

  // Runs what no strategy takes as a whole; says what of it is interpreted.
  static std::string InPieces(const OpSample& sample, const Program& program,
                              const NamedValues& inputs, const NamedValues& wanted) {
    const EveryWay ways(program, {.threads = 1, .strict = true});
    const NamedValues got = ways.Run(inputs);
    const Executable& executable = ways.made();
    const bool is_random = sample.info.HasTrait<lathe::Random>();
    for (size_t i = 0; i < got.size() && !is_random; ++i) {
      Compare(sample.label + ", in pieces", got[i].second.tensor(), wanted[i].second.tensor());
    }
    for (const CompiledFunctionInfo& info : executable.functions()) {
      if (!info.strategy.empty()) continue;
      const size_t at = info.why_not.rfind("loops: ") + 7;  // the last one
      return info.why_not.substr(at);
    }
    return executable.interpreted_operations().empty() ? "" : "it is in no function";
  }

  static void Compare(const std::string& label, const Tensor& got, const Tensor& wanted) {
    double tolerance = 1e-5;
    if (wanted.element_type() == ElementType::kF16) tolerance = 2e-3;
    if (wanted.element_type() == ElementType::kBF16) tolerance = 2e-2;
    const Closeness close = AllClose(got, wanted, tolerance, tolerance);
    EXPECT_TRUE(close) << label << ": " << close.description;
  }

  // The code of what was lowered, with checked accesses and without.
  void RunKernels(const Target& target) {
    std::vector<KernelSource> sources, checked;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const Block* body = kernels_[i].function->region(0).front();
      sources.push_back({StrCat("k", i), body, kernels_[i].in_place});
      checked.push_back({StrCat("k", i), body, kernels_[i].in_place, /*check_accesses=*/true});
    }
    const auto library = CodeGenerator::Get().Compile(sources, target);
    const auto checking = CodeGenerator::Get().Compile(checked, target);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (!RunKernel(kernels_[i], *checking, checked[i])) continue;  // could write anywhere
      RunKernel(kernels_[i], *library, sources[i]);
    }
    kernels_.clear();
  }

  // Whether all accesses are within bounds, if they are checked.
  static bool RunKernel(const Kernel& k, const codegen::KernelLibrary& library,
                        const KernelSource& source) {
    std::vector<Tensor> outputs;
    std::vector<Shape> shapes;
    std::vector<KernelBuffer> buffers;
    for (const Tensor& wanted : k.wanted) outputs.push_back(ZeroLike(wanted));
    for (const Tensor& t : k.inputs) {
      buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
      shapes.push_back(t.shape());
    }
    for (Tensor& t : outputs) buffers.push_back({t.mutable_raw(), t.shape().data()});
    codegen::Workspaces scratch(library.image().Find(source.name).workspaces,
                                codegen::ArgumentTypes(*source.body), shapes);
    scratch.AddTo(buffers);
    library.Find(source.name)(buffers.data(), nullptr);
    const std::string what = StrCat(k.label, source.check_accesses ? ", checked" : "", ", code");
    if (source.check_accesses && !codegen::ExpectInBounds(buffers.back())) {
      ADD_FAILURE() << what;
      return false;
    }
    for (size_t r = 0; r < outputs.size(); ++r) Compare(what, outputs[r], k.wanted[r]);
    for (const auto& [input, output] : k.in_place) {
      std::vector<KernelBuffer> shared = buffers;
      Tensor both = outputs[output];
      if (both.byte_size() == 0) continue;
      std::memcpy(both.mutable_raw(), k.inputs[input].raw(), both.byte_size());
      shared[input].data = shared[k.inputs.size() + output].data = both.mutable_raw();
      library.Find(source.name)(shared.data(), nullptr);
      EXPECT_TRUE(std::ranges::equal(both.bytes(), outputs[output].bytes()))
          << what << ": result " << output << " over operand " << input;
    }
    return true;
  }

  lower::Machine machine_;
  std::optional<OpSampler> sampler_;
  std::vector<Kernel> kernels_;
};

// Element types that generated code does not know are no reason to tell of each op.
bool IsOfCommonTypes(std::string_view why) {
  for (const char* type : {"c64", "c128", "f4", "f8", "i2", "i4", "u2", "u4", "string"}) {
    if (why.starts_with(StrCat("elements are ", type))) return false;
  }
  return true;
}

std::set<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

// What was lowered stays so. What a part finds is written to build/op_lowering.<part>.txt: sorted
// together, these are op_lowering.txt.
TEST_P(OpLoweringTest, EveryOpIsLoweredOrSaysWhyNot) {
  std::map<std::string, std::string> refused;  // with a sample of each
  size_t lowered = 0, number = 0;
  for (const OpInfo info : context_.ops()) {
    if (number++ % kParts != GetParam()) continue;
    if (!info.name().starts_with("nn.") || info.HasTrait<Inplace>()) continue;
    if (const std::string why = sampler_->ReasonAgainst(info); !why.empty()) continue;
    for (const OpSample& sample : sampler_->Samples(info)) {
      for (const Declared how : {Declared::kStatic, Declared::kSymbolic}) {
        std::string why;
        try {
          why = Lower(sample, how);
        } catch (const Error& error) {
          ADD_FAILURE() << sample.label << ": " << error.Render();
        }
        lowered += why.empty() ? 1 : 0;
        if (!why.empty() && IsOfCommonTypes(why)) {
          refused.emplace(StrCat(info.name(), ": ", why), sample.label);
        }
      }
    }
    RunKernels(Target::Host());
  }
  std::cout << lowered << " samples lowered\n";
  std::ofstream written(StrCat(LATHE_BUILD_DIR "/op_lowering.", GetParam(), ".txt"));
  std::ofstream samples(StrCat(LATHE_BUILD_DIR "/op_lowering.", GetParam(), ".samples"));
  for (const auto& [line, label] : refused) {
    written << line << "\n";
    samples << line << "\t" << label << "\n";
  }
  const auto known = LinesOf(LATHE_SOURCE_DIR "/test/unit/lower/op_lowering.txt");
  for (const auto& [line, label] : refused) {
    EXPECT_TRUE(known.contains(line)) << "no longer lowered: " << line << ", " << label;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, OpLoweringTest, ::testing::Range(size_t{0}, kParts));

}  // namespace
}  // namespace lathe::lower
