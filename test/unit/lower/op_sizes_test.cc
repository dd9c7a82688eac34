#include <cstring>
#include <iostream>
#include <map>
#include <set>

#include "lathe/ir/traits.h"
#include "test/unit/lower/lower_util.h"
#include "test/unit/lower/op_program.h"

// Every op of nn by itself, compiled for any sizes and run on some: empty, single, odd, and next to
// what fills vectors, tiles, panels and blocks of depth. Accesses are checked; what the interpreter
// gives is what is right.
namespace lathe::lower {
namespace {

constexpr uint64_t kSeed = 21;
constexpr int64_t kExtents[] = {0, 1, 2, 7, 15, 16, 17, 33};
constexpr int64_t kLargeExtents[] = {255, 257, 513, 1025, 2047, 2048, 2049};
constexpr double kMostElements = 1 << 14;  // of inputs with a large extent
constexpr size_t kParts = 4;               // of the ops, tested at once

// The same elements over and over in another shape.
Tensor Resized(const Tensor& tensor, const Shape& shape) {
  Tensor result = ZeroLike(Tensor(tensor.element_type(), shape));
  const auto bytes = static_cast<size_t>(BitWidth(tensor.element_type()) / 8);
  if (tensor.num_elements() == 0) return result;
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    std::memcpy(result.mutable_raw() + static_cast<size_t>(i) * bytes,
                tensor.raw() + static_cast<size_t>(i % tensor.num_elements()) * bytes, bytes);
  }
  return result;
}

class OpSizesTest : public LowerTest, public ::testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    LowerTest::SetUp();
    sampler_.emplace(context_, lathe::testing::ReadSampleHints(), kSeed);
  }

  // The inputs with every extent `from` made `to`.
  static NamedValues WithExtent(const NamedValues& inputs, int64_t from, int64_t to) {
    NamedValues resized;
    for (const auto& [name, value] : inputs) {
      Shape shape = value.tensor().shape();
      std::ranges::replace(shape, from, to);
      resized.emplace_back(name, Resized(value.tensor(), shape));
    }
    return resized;
  }

  // How many elements the inputs have once every extent `from` is `to`.
  static double ElementsWith(const NamedValues& inputs, int64_t from, int64_t to) {
    double all = 0;
    for (const auto& [name, value] : inputs) {
      double count = 1;
      for (const int64_t d : value.tensor().shape())
        count *= static_cast<double>(d == from ? to : d);
      all += count;
    }
    return all;
  }

  static bool HasWholeBytes(const NamedValues& inputs) {
    return std::ranges::all_of(inputs, [](const auto& input) {
      const ElementType element = input.second.tensor().element_type();
      return element != ElementType::kString && BitWidth(element) >= 8;
    });
  }

  void ExpectSame(const Executable& executable, Program& program, const NamedValues& inputs,
                  const std::string& what) {
    NamedValues wanted;
    try {
      wanted = Interpreter(program, {.seed = kSeed}).Run(inputs);
    } catch (const Error&) {  // sizes that contradict one another, or indices
      return Refuse(executable, inputs, what);
    }
    ++runs_;
    try {
      const NamedValues got = executable.Run(inputs);
      for (size_t i = 0; i < got.size(); ++i) {
        if (!wanted[i].second.is_tensor()) continue;
        const Closeness close =
            AllClose(got[i].second.tensor(), wanted[i].second.tensor(), 1e-4, 1e-4);
        EXPECT_TRUE(close) << what << ": " << close.description;
      }
    } catch (const Error& error) {
      ADD_FAILURE() << what << ": " << error.Render();
    }
  }

  // By a constraint of the program or an index, before a kernel would read or write elsewhere.
  void Refuse(const Executable& executable, const NamedValues& inputs, const std::string& what) {
    ++refusals_;
    try {
      (void)executable.Run(inputs);
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << what << ": " << error.Render();
    }
  }

  void ExpectAnySize(const OpSample& sample) {
    if (!HasTensorsOnly(sample) || sample.info.HasTrait<lathe::Random>()) return;
    Program program = ProgramOf(context_, sample, Declared::kSymbolic);
    const NamedValues inputs = InputsOf(program, sample);
    std::set<int64_t> extents;
    for (const auto& [name, value] : inputs) {
      extents.insert(value.tensor().shape().begin(), value.tensor().shape().end());
    }
    if (extents.empty() || !HasWholeBytes(inputs)) return;
    const Executable executable(program, {.threads = 1, .check_accesses = true});
    for (const int64_t from : extents) {
      for (const int64_t to : kExtents) {
        ExpectSame(executable, program, WithExtent(inputs, from, to),
                   StrCat(sample.label, ", ", to, " for ", from));
      }
      if (sample.info.name().ends_with("_prod")) continue;  // infinite or NaN, as they are ordered
      for (const int64_t to : kLargeExtents) {
        if (ElementsWith(inputs, from, to) > kMostElements) continue;
        ExpectSame(executable, program, WithExtent(inputs, from, to),
                   StrCat(sample.label, ", ", to, " for ", from));
      }
    }
  }

  std::optional<OpSampler> sampler_;
  size_t runs_ = 0, refusals_ = 0;
};

TEST_P(OpSizesTest, NoAccessOutOfBounds) {
  size_t number = 0;
  for (const OpInfo info : context_.ops()) {
    if (number++ % kParts != GetParam()) continue;
    if (!info.name().starts_with("nn.") || info.HasTrait<Inplace>()) continue;
    if (!sampler_->ReasonAgainst(info).empty()) continue;
    std::set<std::string> cases;  // one type of each
    for (const OpSample& sample : sampler_->Samples(info)) {
      if (!cases.insert(sample.label.substr(0, sample.label.find('='))).second) continue;
      try {
        ExpectAnySize(sample);
      } catch (const Error& error) {
        ADD_FAILURE() << sample.label << ": " << error.Render();
      }
    }
  }
  std::cout << runs_ << " runs, " << refusals_ << " refused\n";
  EXPECT_GT(runs_, 500U);
}

INSTANTIATE_TEST_SUITE_P(Parts, OpSizesTest, ::testing::Range(size_t{0}, kParts));

}  // namespace
}  // namespace lathe::lower
