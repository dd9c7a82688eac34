#include "lathe/dialect/op_kind.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <set>

#include "lathe/ir/builder.h"
#include "lathe/ir/dialect.h"
#include "lathe/support/random.h"
#include "test/unit/dialect/op_sampler.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr uint64_t kSeed = 7;

// An element of a result: which result, which element.
using Place = std::pair<size_t, int64_t>;
// Which elements of one operand each result element depends on, as far as trying shows.
using Dependencies = std::map<Place, std::set<int64_t>>;

bool IsPlain(const RtValue& value) {
  return value.is_tensor() && value.tensor().element_type() != ElementType::kString &&
         !IsSubByte(value.tensor().element_type());
}

int64_t Width(const Tensor& t) { return BitWidth(t.element_type()) / 8; }

// `t` with element `i` replaced by the element `i` of `other`.
Tensor WithElement(const Tensor& t, int64_t i, const Tensor& other) {
  Tensor result = t;
  const auto width = static_cast<size_t>(Width(t));
  std::memcpy(result.mutable_raw() + static_cast<size_t>(i) * width,
              other.raw() + static_cast<size_t>(i) * width, width);
  return result;
}

// The elements of `t` one further, so that indices and lengths stay what the op takes; other ones
// where there is only one.
Tensor Others(const Tensor& t) {
  if (t.num_elements() < 2) return RandomTensor(t.element_type(), t.shape(), kSeed + 1);
  Tensor result = t;
  const auto width = static_cast<size_t>(Width(t));
  std::memcpy(result.mutable_raw(), t.raw() + width, t.byte_size() - width);
  std::memcpy(result.mutable_raw() + (t.byte_size() - width), t.raw(), width);
  return result;
}

// Elements that an op may treat in a way of their own.
Tensor Special(const Tensor& t) {
  if (!IsFloat(t.element_type())) return RandomTensor(t.element_type(), t.shape(), kSeed + 2);
  const std::vector<double> special = {1.5, std::numeric_limits<double>::infinity(), 7.25,
                                       std::numeric_limits<double>::quiet_NaN()};
  std::vector<double> values;
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    values.push_back(special[static_cast<size_t>(i) % special.size()]);
  }
  return Cast(Tensor::Of<double>(t.shape(), values), t.element_type());
}

// Row-major index of `at` (an element of `shape`) in a tensor that broadcasts to `shape`.
int64_t BroadcastIndex(const Shape& from, const Shape& shape, int64_t at) {
  int64_t index = 0, stride = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    const size_t axis = shape.size() - 1 - d;
    const int64_t here = at % shape[axis];
    at /= shape[axis];
    if (d >= from.size()) continue;
    const int64_t extent = from[from.size() - 1 - d];
    index += (extent == 1 ? 0 : here) * stride;
    stride *= extent;
  }
  return index;
}

class OpKindTest : public ProgramTest {
 protected:
  OpKindTest() : sampler_(context_, ReadSampleHints(), kSeed) {}

  Operation* Make(Program& program, const OpSample& sample) {
    Builder b = Builder::AtEnd(program.block());
    std::vector<Value> operands;
    for (const RtValue& value : sample.inputs) {
      if (value.is_none()) {
        operands.emplace_back();
        continue;
      }
      const Tensor& t = value.tensor();
      const Type type =
          VTensorType::Get(context_, SymShape::FromConstants(t.shape()), t.element_type());
      const NamedAttribute name = b.Named("name", b.Attr(StrCat("x", operands.size())));
      operands.push_back(b.Create("nn.feed", {}, {&name, 1}, {&type, 1})->result(0));
    }
    std::vector<NamedAttribute> attributes;
    for (const auto& [name, value] : sample.attributes) attributes.push_back(b.Named(name, value));
    return b.CreateInferred(sample.info, operands, attributes, sample.num_results);
  }

  // Which elements of the results change when one element of operand `k` does.
  Dependencies Try(Operation* op, const OpSample& sample, size_t k) {
    Dependencies found;
    const std::vector<RtValue> base = EvalOp(op, sample.inputs);
    const Tensor& x = sample.inputs[k].tensor();
    for (const Tensor& others : {Others(x), Special(x)}) {
      for (int64_t e = 0; e < x.num_elements(); ++e) {
        std::vector<RtValue> inputs = sample.inputs;
        inputs[k] = WithElement(x, e, others);
        try {
          Compare(base, EvalOp(op, inputs), e, found);
        } catch (const Error&) {  // an index that is out of range
        }
      }
    }
    return found;
  }

  static bool Differ(const Tensor& a, const Tensor& b, int64_t i) {
    if (a.element_type() == ElementType::kString) {
      return Elements<std::string>(a)[i] != Elements<std::string>(b)[i];
    }
    const auto width = static_cast<size_t>(Width(a));
    const size_t at = static_cast<size_t>(i) * width;
    return std::memcmp(a.raw() + at, b.raw() + at, width) != 0;
  }

  static void Compare(const std::vector<RtValue>& base, const std::vector<RtValue>& now, int64_t e,
                      Dependencies& found) {
    for (size_t r = 0; r < base.size(); ++r) {
      if (!base[r].is_tensor() || IsSubByte(base[r].tensor().element_type())) continue;
      const Tensor &a = base[r].tensor(), &b = now[r].tensor();
      for (int64_t i = 0; i < a.num_elements(); ++i) {
        if (Differ(a, b, i)) found[{r, i}].insert(e);
      }
    }
  }

  // What of the kind's promise does not hold; empty if all does.
  std::string Broken(Operation* op, const OpSample& sample, OpKind kind, size_t* seen) {
    std::vector<RtValue> results = EvalOp(op, sample.inputs);
    for (size_t k = 0; k < sample.inputs.size(); ++k) {
      if (NeedsWhole(op, k) || !IsPlain(sample.inputs[k])) continue;
      const Shape& from = sample.inputs[k].tensor().shape();
      for (const auto& [place, elements] : Try(op, sample, k)) {
        ++*seen;
        const Shape& to = results[place.first].tensor().shape();
        if (elements.size() > 1) return StrCat("several elements of operand ", k);
        if (kind == OpKind::kInjective) continue;
        if (kind == OpKind::kElementwise && from != to) return StrCat("shape of operand ", k);
        if (*elements.begin() != BroadcastIndex(from, to, place.second)) {
          return StrCat("another index of operand ", k);
        }
      }
    }
    return "";
  }

  static bool CanTry(const OpSample& sample) {
    return std::all_of(sample.inputs.begin(), sample.inputs.end(), [](const RtValue& v) {
      return v.is_none() || (IsPlain(v) && v.tensor().num_elements() <= 64);
    });
  }

  std::string Check(const OpSample& sample, OpKind claimed, size_t* seen) {
    Program program(context_);
    Operation* op = Make(program, sample);
    return Broken(op, sample, claimed, seen);
  }

  OpSampler sampler_;
};

TEST_F(OpKindTest, EveryOpDeclaresOne) {
  std::map<std::string_view, size_t> counts;
  for (const OpInfo info : context_.ops()) {
    ASSERT_NE(info.GetInterface<OpKindInterface>(), nullptr) << info.name();
    ++counts[info.dialect()->name()];
  }
  EXPECT_GE(counts["nn"], 150U);
}

TEST_F(OpKindTest, NamesReadBack) {
  for (const OpKind kind : {OpKind::kElementwise, OpKind::kBroadcast, OpKind::kInjective,
                            OpKind::kReduction, OpKind::kOutElementwiseFusable, OpKind::kOpaque}) {
    EXPECT_EQ(ParseOpKind(Name(kind)), kind);
  }
  const Error error = ErrorOf([] { (void)ParseOpKind("elementwize"); });
  EXPECT_EQ(error.id(), "op/kind");
  EXPECT_NE(error.Render().find("elementwise"), std::string::npos);
}

TEST_F(OpKindTest, WhatIsDeclaredHoldsOnEverySample) {
  size_t ops = 0;
  for (const OpInfo info : context_.ops()) {
    if (!sampler_.ReasonAgainst(info).empty()) continue;
    size_t seen = 0, tried = 0;
    bool reads = false;
    for (const OpSample& sample : sampler_.Samples(info)) {
      if (!CanTry(sample)) continue;
      Program program(context_);
      Operation* op = Make(program, sample);
      const OpKind kind = KindOf(op);
      if (kind > OpKind::kInjective) continue;
      ++tried;
      EXPECT_EQ(Broken(op, sample, kind, &seen), "") << sample.label;
      for (size_t k = 0; k < op->num_operands(); ++k) reads |= !NeedsWhole(op, k);
    }
    ops += tried > 0 ? 1 : 0;
    EXPECT_EQ(tried > 0 && reads, seen > 0) << info.name() << ": nothing was tried";
  }
  std::cout << ops << " ops of kind elementwise, broadcast or injective\n";
  EXPECT_GE(ops, 95U);
}

TEST_F(OpKindTest, FalseDeclarationsAreFound) {
  for (const auto& [name, claimed] :
       {std::pair("nn.softmax", OpKind::kInjective), std::pair("nn.cum_sum", OpKind::kElementwise),
        std::pair("nn.transpose", OpKind::kElementwise),
        std::pair("nn.flatten", OpKind::kBroadcast), std::pair("nn.matmul", OpKind::kInjective)}) {
    std::string broken;
    for (const OpSample& sample : sampler_.Samples(context_.FindOp(name))) {
      size_t seen = 0;
      if (CanTry(sample) && broken.empty()) broken = Check(sample, claimed, &seen);
    }
    EXPECT_NE(broken, "") << name;
  }
}

TEST_F(OpKindTest, KindMayDependOnAttributes) {
  std::set<OpKind> kinds;
  for (const OpSample& sample : sampler_.Samples(context_.FindOp("nn.resize"))) {
    Program program(context_);
    kinds.insert(KindOf(Make(program, sample)));
  }
  EXPECT_EQ(kinds, (std::set<OpKind>{OpKind::kInjective, OpKind::kOutElementwiseFusable,
                                     OpKind::kOpaque}));
}

}  // namespace
}  // namespace lathe::testing
