#pragma once

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "lathe/ir/type.h"

/// What the sources of this folder share of oneDNN: layouts of tensors of f32, and threads.
namespace lathe::onednn {

using Layout = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

Dims DimsOf(AnyTensorType type);

/// The last axis is contiguous.
Layout RowMajor(const Dims& dims);
/// Of [N, C, ...]: channels are contiguous, then the last axis.
Layout ChannelsLast(const Dims& dims);
/// What oneDNN likes best.
Layout AnyLayout(const Dims& dims);

/// The elements follow one another as in a row-major tensor; axes of extent 1 do not count.
bool IsRowMajor(const Layout& layout);

inline int64_t BytesOf(const Layout& layout) { return static_cast<int64_t>(layout.get_size()); }

/// While it lives, oneDNN uses the calling thread alone: what it computes does not depend on the
/// number of threads then, and who wants more of them calls it from several.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// Strict f32, scratch memory from the caller.
dnnl::primitive_attr AttributesWith(const dnnl::post_ops& post);

/// For functions that take any primitive.
dnnl::primitive_desc Generic(const dnnl::primitive_desc_base& primitive);

/// Layout of the argument `name` (DNNL_ARG_...) of a primitive.
Layout ArgumentOf(const dnnl::primitive_desc& primitive, int name);

}  // namespace lathe::onednn
