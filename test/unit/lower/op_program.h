#pragma once

#include <string>

#include "lathe/dialect/op_kind.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/support/error.h"
#include "test/unit/dialect/op_sampler.h"

namespace lathe::lower {

using lathe::testing::OpSample;
using lathe::testing::OpSampler;

enum class Declared { kStatic, kSymbolic };

/// The type of a tensor; symbolic: extent 3 is the symbol D3, wherever it is.
inline Type TypeOf(IrContext& context, const Tensor& tensor, Declared how) {
  SymShape shape = SymShape::FromConstants(tensor.shape());
  for (size_t i = 0; how == Declared::kSymbolic && i < shape.dims.size(); ++i) {
    shape.dims[i] = Dim::Symbol(StrCat("D", tensor.shape()[i]));
  }
  return VTensorType::Get(context, shape, tensor.element_type());
}

/// Feeds x0, x1, ... -> the op -> fetches y0, y1, ...; operands that say sizes are constants.
inline Program ProgramOf(IrContext& context, const OpSample& sample, Declared how) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  ShapeInferencer facts(&program.parameters());
  b.set_facts(&facts);
  std::vector<NamedAttribute> attributes;
  for (const auto& [name, value] : sample.attributes) attributes.push_back(b.Named(name, value));
  std::vector<Value> operands;
  const auto* kind = sample.info.GetInterface<OpKindInterface>();
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    if (sample.inputs[i].is_none()) {
      operands.emplace_back();
      continue;
    }
    const Tensor& tensor = sample.inputs[i].tensor();
    const bool is_whole = kind != nullptr && i < 64 && (kind->whole >> i & 1) != 0;
    const NamedAttribute named =
        is_whole ? b.Named("value", b.Attr(tensor)) : b.Named("name", b.Attr(StrCat("x", i)));
    const Type type = TypeOf(context, tensor, how);
    Operation* op = is_whole
                        ? b.Create("builtin.constant", {}, {&named, 1})
                        : b.Create("nn.feed", {}, {&named, 1}, std::span<const Type>(&type, 1));
    facts.Visit(op);
    operands.push_back(op->result(0));
  }
  Operation* op = b.CreateInferred(sample.info, operands, attributes, sample.num_results);
  for (size_t i = 0; i < op->num_results(); ++i) {
    const Value v = op->result(i);
    const NamedAttribute name = b.Named("name", b.Attr(StrCat("y", i)));
    b.Create("nn.fetch", {&v, 1}, {&name, 1});
  }
  return program;
}

/// What the feeds of such a program get.
inline NamedValues InputsOf(Program& program, const OpSample& sample) {
  NamedValues inputs;
  for (Operation* feed : program.feeds()) {
    const std::string name(feed->attribute("name").cast<StrAttribute>().value());
    inputs.emplace_back(name, sample.inputs[static_cast<size_t>(*ParseInt(name.substr(1)))]);
  }
  return inputs;
}

inline bool HasTensorsOnly(const OpSample& sample) {
  return std::ranges::all_of(sample.inputs,
                             [](const RtValue& v) { return v.is_none() || v.is_tensor(); });
}

}  // namespace lathe::lower
