#include "src/external/onednn/descriptors.h"

#include <omp.h>

#include <algorithm>
#include <span>

namespace lathe::onednn {
namespace {

Layout Strided(const Dims& dims, std::span<const size_t> outer_to_inner) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = outer_to_inner.size(); i-- > 0;) {
    strides[outer_to_inner[i]] = stride;
    stride *= dims[outer_to_inner[i]];
  }
  return {dims, dnnl::memory::data_type::f32, strides};
}

}  // namespace

Dims DimsOf(AnyTensorType type) {
  Dims dims;
  for (const Dim& d : type.dims()) dims.push_back(d.value());
  return dims;
}

Layout RowMajor(const Dims& dims) {
  std::vector<size_t> order;
  for (size_t i = 0; i < dims.size(); ++i) order.push_back(i);
  return Strided(dims, order);
}

Layout ChannelsLast(const Dims& dims) {
  std::vector<size_t> order{0};
  for (size_t i = 2; i < dims.size(); ++i) order.push_back(i);
  order.push_back(1);
  return Strided(dims, order);
}

Layout AnyLayout(const Dims& dims) {
  return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

bool IsRowMajor(const Layout& layout) {
  if (layout.get_format_kind() != dnnl::memory::format_kind::blocked) return false;
  if (layout.get_inner_nblks() != 0) return false;
  const Dims dims = layout.get_dims(), strides = layout.get_strides();
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    if (strides[i] != stride) return false;
    stride *= dims[i];
  }
  return true;
}

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

dnnl::primitive_attr AttributesWith(const dnnl::post_ops& post) {
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(post);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

dnnl::primitive_desc Generic(const dnnl::primitive_desc_base& primitive) {
  dnnl_primitive_desc_t copy = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_clone(&copy, primitive.get()), "no memory");
  return dnnl::primitive_desc(copy);
}

Layout ArgumentOf(const dnnl::primitive_desc& primitive, int name) {
  return primitive.query_md(dnnl::query::exec_arg_md, name);
}

}  // namespace lathe::onednn
