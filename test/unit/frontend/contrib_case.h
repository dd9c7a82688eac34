#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "test/unit/frontend/model_util.h"

/// Models of one operator of another domain, and what onnxruntime 1.32 computed for them.
namespace lathe::onnx {

inline constexpr Text kContrib = "com.microsoft";
inline constexpr Text kClassical = "ai.onnx.ml";

// Eighths that follow no pattern, others for each input.
inline Tensor Ramp(Shape shape, int64_t input) {
  int64_t count = 1;
  for (const int64_t d : shape) count *= d;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((i * 37 + input * 11) % 23 - 11) / 8);
  }
  return F32(std::move(shape), std::move(values));
}

// Small integers that follow no pattern.
inline Tensor Bytes(Shape shape, int64_t input, ElementType type) {
  std::vector<double> values;
  for (int64_t i = 0; i < NumElements(shape); ++i) {
    const int64_t value = (i * 37 + input * 11) % 251;
    values.push_back(static_cast<double>(type == ElementType::kU8 ? value : value - 125));
  }
  return Cast(Tensor::Of<double>(std::move(shape), values), type);
}

inline Tensor Integers(std::vector<int64_t> values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}

struct Case {
  const char* name;
  Text op;
  Text domain;
  std::vector<Tensor> inputs;  ///< undefined: absent
  std::vector<AttributeMsg> attributes;
  std::vector<Tensor> expected;  ///< undefined: not asked for
};

inline constexpr Text kInputs[] = {"i0", "i1",  "i2",  "i3",  "i4",  "i5",  "i6",  "i7",  "i8",
                                   "i9", "i10", "i11", "i12", "i13", "i14", "i15", "i16", "i17"};
inline constexpr Text kOutputs[] = {"o0", "o1", "o2", "o3"};

// A model of one node; `symbolic` leaves the first dim of the first input open.
inline ModelMsg ModelOf(const Case& c, bool symbolic = false) {
  NodeMsg node = Node(c.op, {}, {}, c.attributes, c.domain);
  std::vector<ValueInfoMsg> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    node.inputs.push_back(c.inputs[i].is_defined() ? kInputs[i] : Text());
    if (!c.inputs[i].is_defined()) continue;
    inputs.push_back(Info(kInputs[i], c.inputs[i].element_type(), c.inputs[i].shape()));
    if (symbolic && i == 0) inputs.back().type.dims[0] = {false, 0, "batch"};
  }
  std::vector<Text> outputs;
  for (size_t i = 0; i < c.expected.size(); ++i) {
    node.outputs.push_back(c.expected[i].is_defined() ? kOutputs[i] : Text());
    if (c.expected[i].is_defined()) outputs.push_back(kOutputs[i]);
  }
  ModelMsg model = Model(17, std::move(inputs), {std::move(node)}, std::move(outputs));
  if (c.domain == kClassical) model.opsets.clear();  // as libraries of trees write them
  model.opsets.push_back({kContrib, 1});
  model.opsets.push_back({kClassical, 3});
  return model;
}

inline NamedValues FeedsOf(const Case& c) {
  NamedValues feeds;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].is_defined()) feeds.emplace_back(std::string(kInputs[i]), c.inputs[i]);
  }
  return feeds;
}

inline void ExpectNear(const Tensor& got, const Tensor& want, const char* name) {
  ASSERT_EQ(got.shape(), want.shape()) << name;
  if (want.element_type() != ElementType::kF32) {
    EXPECT_EQ(got, want) << name;
    return;
  }
  const auto a = got.data<float>(), b = want.data<float>();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-4F * (1 + std::abs(b[i]))) << name << " at " << i;
  }
}

/// The interpreter computes what is expected.
inline void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Loaded loaded;
    Program program = Import(loaded.context, ModelOf(c));
    const NamedValues got = RunProgram(program, FeedsOf(c));
    size_t at = 0;
    for (const Tensor& want : c.expected) {
      if (want.is_defined()) ExpectNear(got[at++].second.tensor(), want, c.name);
    }
  }
}

/// What the import says.
inline std::string Refusal(const Case& c, bool symbolic = false) {
  Loaded loaded;
  const Error error = Caught([&] { Import(loaded.context, ModelOf(c, symbolic)); });
  EXPECT_EQ(error.id(), "onnx/contrib") << c.name;
  return error.message();
}

}  // namespace lathe::onnx
