#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/ir/tensor_of.h"
#include "src/external/onednn/descriptors.h"

namespace lathe::onednn {

/// What a primitive reads.
struct Input {
  int name;  ///< DNNL_ARG_...
  Value value;
  Layout view;                        ///< what a row-major tensor of the value is to the primitive
  std::optional<Layout> wanted = {};  ///< how it is read; without: as the primitive says
};

/// What follows a primitive, element by element.
struct Post {
  dnnl::algorithm kind;
  float alpha = 0, beta = 0;
  std::optional<Layout> other = {};  ///< a second operand
  bool whole = false;                ///< which has the shape of the result
};

/// Some rows of the result of a primitive.
struct Rows {
  int64_t begin, end;
};

/// A primitive that computes them.
struct Part {
  dnnl::primitive_desc primitive;
  int64_t read;  ///< where its DNNL_ARG_SRC begins, in bytes
};

/// An operation, with those that follow it, as a primitive.
struct Node {
  std::vector<Input> inputs;
  Dims dims;                   ///< of the result, as the primitive has them
  bool channels_last = false;  ///< the result is
  std::vector<Post> post = {};
  std::function<dnnl::primitive_desc(const dnnl::primitive_attr&)> make = {};

  /// The result may be computed in parts: so many rows, which follow one another in memory.
  int64_t rows = 1;
  double flops = 0;
  std::function<Part(Rows, const Layout& weights, const dnnl::primitive_attr&)> make_part = {};

  dnnl::primitive_desc Make() const { return make(AttributesOf(dims)); }
  /// Errors: those of oneDNN.
  Part MakePart(Rows rows, const Layout& weights) const;
  /// In how many parts: the same for any number of threads, since the parts decide on roundings.
  int64_t NumParts() const;

 private:
  dnnl::primitive_attr AttributesOf(const Dims& result) const;
};

/// A node, or why there is none.
struct Described {
  std::string why_not;
  Node node;
};

struct DescribeOptions {
  bool channels_last = false;  ///< elementwise operations read and write channels last
  Value bias = {};             ///< [N], that a product adds
};

/// An operation as a primitive of its own.
Described Describe(const dnnl::engine& engine, Operation* op, const DescribeOptions& options = {});

/// Makes `op`, an elementwise operation on what the node computes (`result`), part of it. False if
/// it cannot be.
bool Follow(Node& node, Operation* op, Value result);

/// `next` adds a row to each row of a product.
bool IsBiasOf(const Operation* product, const Operation* next);

/// Convolutions and products: others may follow them.
bool TakesFollowers(const Operation* op);

/// What is worth a call of oneDNN: those, pooling, softmax, normalization.
bool IsAnchor(const Operation* op);

/// oneDNN has code for it that is more than a plain loop.
bool IsFast(const dnnl::primitive_desc& primitive);

// By kind of operation.
Described DescribeConv(const dnnl::engine& engine, Operation* op);
Described DescribePool(const dnnl::engine& engine, Operation* op);
Described DescribeProduct(const dnnl::engine& engine, Operation* op, Value bias);
Described DescribeRows(const dnnl::engine& engine, Operation* op);
Described DescribeElementwise(const dnnl::engine& engine, Operation* op, bool channels_last);
Described DescribeConcat(const dnnl::engine& engine, Operation* op, bool channels_last);

/// A constant or a parameter.
bool IsConstant(Value v);
inline Dims DimsOf(Value v) { return DimsOf(TensorOf(v)); }

}  // namespace lathe::onednn
