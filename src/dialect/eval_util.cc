#include "lathe/dialect/eval_util.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"

namespace lathe::eval {

void FailShape(std::string id, std::string message, std::string hint) {
  Error error(ErrorCode::kShape, std::move(id), std::move(message));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

void FailArgument(std::string id, std::string message, std::string hint) {
  Error error(ErrorCode::kInvalidArgument, std::move(id), std::move(message));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

int64_t NormalizeAxis(int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  if (rank == 0) FailShape("shape/axis", StrCat("axis ", axis, " of a scalar, which has no axes"));
  FailShape("shape/axis", StrCat("axis ", axis, " is out of range for rank ", rank),
            StrCat("use an axis in [", -rank, ", ", rank - 1, "]"));
}

std::vector<int64_t> NormalizeAxes(std::span<const int64_t> axes, int64_t rank) {
  std::vector<int64_t> result;
  for (int64_t axis : axes) {
    result.push_back(NormalizeAxis(axis, rank));
    if (std::count(result.begin(), result.end(), result.back()) > 1) {
      FailShape("shape/axis", StrCat("axis ", axis, " occurs twice"), "list each axis once");
    }
  }
  return result;
}

std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = WrapMul(strides[i], shape[i]);
  return strides;
}

int64_t Product(std::span<const int64_t> dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product = WrapMul(product, dims[i]);
  return product;
}

bool NextIndex(std::span<const int64_t> shape, std::span<int64_t> index) {
  thread_local BudgetTicker ticker;
  ticker.Tick();
  for (size_t d = shape.size(); d-- > 0;) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

// ---- broadcasting -------------------------------------------------------------------------------

namespace {

[[noreturn]] void FailBroadcast(const Shape& a, const Shape& b) {
  FailShape("shape/broadcast",
            StrCat("shapes ", ShapeToString(a), " and ", ShapeToString(b), " do not broadcast"),
            "counted from the back, extents must be equal or one of them 1");
}

Shape BroadcastPair(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const size_t skip = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& extent = result[skip + i];
    if (extent == shorter[i] || shorter[i] == 1) continue;
    if (extent != 1) FailBroadcast(a, b);
    extent = shorter[i];
  }
  return result;
}

// Strides of `input` seen under the shape `output`; 0 where it is repeated.
std::vector<int64_t> BroadcastStrides(const Shape& input, const Shape& output) {
  if (input.size() > output.size()) FailBroadcast(input, output);
  const std::vector<int64_t> own = RowMajorStrides(input);
  std::vector<int64_t> strides(output.size(), 0);
  const size_t skip = output.size() - input.size();
  for (size_t i = 0; i < input.size(); ++i) {
    if (input[i] == 1) continue;
    if (input[i] != output[skip + i]) FailBroadcast(input, output);
    strides[skip + i] = own[i];
  }
  return strides;
}

}  // namespace

Shape BroadcastShapes(std::span<const Shape> shapes) {
  Shape result;
  for (const Shape& shape : shapes) result = BroadcastPair(result, shape);
  return result;
}

Broadcaster::Broadcaster(std::span<const Shape> inputs, const Shape& output) {
  std::vector<std::vector<int64_t>> strides;
  for (const Shape& input : inputs) strides.push_back(BroadcastStrides(input, output));
  inner_strides_.assign(inputs.size(), 0);
  if (std::count(output.begin(), output.end(), 0) > 0) {
    rows_ = row_length_ = 0;
    return;
  }
  std::vector<int64_t> of_dim(inputs.size());
  for (size_t d = output.size(); d-- > 0;) {
    for (size_t i = 0; i < inputs.size(); ++i) of_dim[i] = strides[i][d];
    AddDim(output[d], of_dim);
  }
  std::reverse(outer_.begin(), outer_.end());
  std::reverse(outer_strides_.begin(), outer_strides_.end());
  for (int64_t extent : outer_) rows_ *= extent;
}

// Dims come innermost first; one that continues its inner neighbor in every input is merged.
void Broadcaster::AddDim(int64_t extent, std::span<const int64_t> strides) {
  if (extent == 1) return;
  if (outer_.empty() && row_length_ == 1) {
    row_length_ = extent;
    inner_strides_.assign(strides.begin(), strides.end());
    return;
  }
  const auto continues = [&](int64_t length, const std::vector<int64_t>& inner) {
    for (size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] != inner[i] * length) return false;
    }
    return true;
  };
  if (outer_.empty() && continues(row_length_, inner_strides_)) {
    row_length_ *= extent;
  } else if (!outer_.empty() && continues(outer_.back(), outer_strides_.back())) {
    outer_.back() *= extent;
  } else {
    outer_.push_back(extent);
    outer_strides_.emplace_back(strides.begin(), strides.end());
  }
}

void Broadcaster::Advance(std::vector<int64_t>& index, std::vector<int64_t>& offsets) const {
  for (size_t d = outer_.size(); d-- > 0;) {
    const bool carry = ++index[d] == outer_[d];
    const int64_t steps = carry ? 1 - outer_[d] : 1;
    for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += steps * outer_strides_[d][i];
    if (!carry) return;
    index[d] = 0;
  }
}

// ---- elements -----------------------------------------------------------------------------------

namespace {

template <class T>
inline constexpr bool kIsNarrowFloat =
    !std::is_arithmetic_v<T> && requires(T t) { static_cast<float>(t); };

// The types that Load and Store know.
template <class F>
void VisitStored(ElementType type, F&& f) {
  switch (type) {
    case ElementType::kBool:
      return f(std::type_identity<bool>{});
    case ElementType::kF8E4M3FN:
      return f(std::type_identity<F8E4M3FN>{});
    case ElementType::kF8E4M3FNUZ:
      return f(std::type_identity<F8E4M3FNUZ>{});
    case ElementType::kF8E5M2:
      return f(std::type_identity<F8E5M2>{});
    case ElementType::kF8E5M2FNUZ:
      return f(std::type_identity<F8E5M2FNUZ>{});
    case ElementType::kF8E8M0:
      return f(std::type_identity<F8E8M0>{});
    default:
      return VisitNumeric(type, std::forward<F>(f));
  }
}

template <class T, class C>
T Narrow(C value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != C{0};
  } else if constexpr (kIsNarrowFloat<T>) {
    if constexpr (std::is_same_v<C, float>) return T(value);
    return T(static_cast<double>(value));
  } else if constexpr (std::is_floating_point_v<C> && std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    if (std::isnan(value)) return 0;
    if (value <= static_cast<C>(Limits::min())) return Limits::min();
    if (value >= static_cast<C>(Limits::max())) return Limits::max();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class C, class T>
C Widen(T value) {
  if constexpr (std::is_floating_point_v<T> && std::is_integral_v<C>) {
    return Narrow<C>(value);
  } else if constexpr (!kIsNarrowFloat<T>) {
    return static_cast<C>(value);
  } else if constexpr (std::is_same_v<C, double>) {
    return static_cast<double>(value);
  } else {
    return static_cast<C>(static_cast<float>(value));
  }
}

}  // namespace

template <class C>
void Load(ElementType type, const void* data, int64_t offset, int64_t count, C* out) {
  VisitStored(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsNarrowFloat<T> && std::is_integral_v<C>) {
      lathe::internal::BadElementType(type, "an integer");
    } else {
      const T* in = static_cast<const T*>(data) + offset;
      for (int64_t i = 0; i < count; ++i) out[i] = Widen<C>(in[i]);
    }
  });
}

template <class C>
void Store(ElementType type, void* data, int64_t offset, int64_t count, const C* in) {
  VisitStored(type, [&]<class T>(std::type_identity<T>) {
    T* out = static_cast<T*>(data) + offset;
    for (int64_t i = 0; i < count; ++i) out[i] = Narrow<T>(in[i]);
  });
}

double RoundedTo(ElementType type, double value) {
  return VisitFloat(
      type, [value]<class T>(std::type_identity<T>) { return static_cast<double>(T(value)); });
}

template void Load(ElementType, const void*, int64_t, int64_t, float*);
template void Load(ElementType, const void*, int64_t, int64_t, double*);
template void Load(ElementType, const void*, int64_t, int64_t, int64_t*);
template void Load(ElementType, const void*, int64_t, int64_t, uint64_t*);
template void Store(ElementType, void*, int64_t, int64_t, const float*);
template void Store(ElementType, void*, int64_t, int64_t, const double*);
template void Store(ElementType, void*, int64_t, int64_t, const int64_t*);
template void Store(ElementType, void*, int64_t, int64_t, const uint64_t*);

// ---- elementwise --------------------------------------------------------------------------------

namespace {

constexpr int64_t kChunk = 512;

// Reads pieces of a broadcast row of one input as C; no copy where the memory already is that.
template <class C>
class RowReader {
 public:
  RowReader(const Tensor& tensor, int64_t stride)
      : type_(tensor.element_type()), data_(tensor.raw()), stride_(stride) {}

  const C* Read(int64_t offset, int64_t count) {
    if (stride_ == 0) {
      Load<C>(type_, data_, offset, 1, buffer_.data());
      std::fill_n(buffer_.begin() + 1, count - 1, buffer_[0]);
      return buffer_.data();
    }
    if (type_ == ElementTypeOf<C>) return reinterpret_cast<const C*>(data_) + offset;
    Load<C>(type_, data_, offset, count, buffer_.data());
    return buffer_.data();
  }

  [[nodiscard]] int64_t stride() const { return stride_; }

 private:
  ElementType type_;
  const std::byte* data_;
  int64_t stride_;
  std::array<C, kChunk> buffer_;
};

template <class C>
class RowWriter {
 public:
  explicit RowWriter(Tensor& tensor) : type_(tensor.element_type()), data_(tensor.mutable_raw()) {}
  // Where to put the results, and the call when they are there.
  C* At(int64_t offset) {
    return type_ == ElementTypeOf<C> ? reinterpret_cast<C*>(data_) + offset : buffer_.data();
  }
  void Done(int64_t offset, int64_t count) {
    if (type_ != ElementTypeOf<C>) Store<C>(type_, data_, offset, count, buffer_.data());
  }

 private:
  ElementType type_;
  std::byte* data_;
  std::array<C, kChunk> buffer_;
};

template <class C>
void RunRows(std::span<const Tensor> inputs, const Broadcaster& rows, const void* op,
             RowKernel<C> kernel, Tensor& result) {
  if (kernel == nullptr) {
    lathe::internal::BadElementType(inputs[0].element_type(), "a type that the op allows");
  }
  std::vector<RowReader<C>> readers;
  readers.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) readers.emplace_back(inputs[i], rows.stride(i));
  RowWriter<C> writer(result);
  std::vector<const C*> in(inputs.size());
  rows.ForEachRow([&](int64_t out_offset, std::span<const int64_t> offsets) {
    for (int64_t done = 0; done < rows.row_length(); done += kChunk) {
      const int64_t count = std::min(kChunk, rows.row_length() - done);
      for (size_t i = 0; i < in.size(); ++i) {
        in[i] = readers[i].Read(offsets[i] + done * readers[i].stride(), count);
      }
      kernel(op, in, writer.At(out_offset + done), count);
      writer.Done(out_offset + done, count);
    }
  });
}

template <class C>
bool IsStoredAs(ElementType type) {
  return type == ElementTypeOf<C> || (std::is_same_v<C, int64_t> && type == ElementType::kIndex);
}

// Whether a kernel can read the inputs as they are stored, without broadcasting or conversion.
template <class C>
bool AreContiguousRows(std::span<const Tensor> inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](const Tensor& input) {
    return IsStoredAs<C>(input.element_type()) && input.shape() == inputs[0].shape();
  });
}

template <class C>
void RunContiguous(std::span<const Tensor> inputs, const void* op, RowKernel<C> kernel,
                   Tensor& result) {
  auto* out = reinterpret_cast<C*>(result.mutable_raw());
  std::vector<const C*> in;
  in.reserve(inputs.size());
  for (const Tensor& input : inputs) in.push_back(reinterpret_cast<const C*>(input.raw()));
  BudgetTicker ticker;
  for (int64_t done = 0; done < result.num_elements(); done += kChunk) {
    ticker.Tick();
    const int64_t count = std::min(kChunk, result.num_elements() - done);
    kernel(op, in, out + done, count);
    for (const C*& row : in) row += count;
  }
}

// Computes with the inputs and results as C.
template <class C>
Tensor ElementwiseAs(std::span<const Tensor> inputs, ElementType type, const void* op,
                     RowKernel<C> kernel) {
  if (kernel != nullptr && IsStoredAs<C>(type) && AreContiguousRows<C>(inputs)) {
    Tensor result(type, inputs[0].shape());
    RunContiguous<C>(inputs, op, kernel, result);
    return result;
  }
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  const Shape shape = BroadcastShapes(shapes);
  Tensor result(type, shape);
  RunRows<C>(inputs, Broadcaster(shapes, shape), op, kernel, result);
  return result;
}

}  // namespace

Tensor Elementwise(std::span<const Tensor> inputs, ElementType result, const RowKernels& kernels) {
  const ElementType type = inputs[0].element_type();
  if (type == ElementType::kF64 || (IsFloat(type) && kernels.f32 == nullptr)) {
    return ElementwiseAs<double>(inputs, result, kernels.op, kernels.f64);
  }
  if (IsFloat(type)) return ElementwiseAs<float>(inputs, result, kernels.op, kernels.f32);
  if (IsInteger(type) && IsSigned(type)) {
    return ElementwiseAs<int64_t>(inputs, result, kernels.op, kernels.i64);
  }
  return ElementwiseAs<uint64_t>(inputs, result, kernels.op, kernels.u64);
}

Tensor BroadcastTo(const Tensor& tensor, const Shape& shape) {
  Tensor result(tensor.element_type(), shape);
  const Broadcaster rows({&tensor.shape(), 1}, shape);
  VisitElementType(tensor.element_type(), [&]<class T>(std::type_identity<T>) {
    const Elements<T> in(tensor);
    std::unique_ptr<T[]> out(new T[static_cast<size_t>(result.num_elements())]);
    rows.ForEachRow([&](int64_t to, std::span<const int64_t> from) {
      const int64_t n = rows.row_length();
      for (int64_t i = 0; i < n; ++i) out[to + i] = in[from[0] + i * rows.stride(0)];
    });
    const std::span<const T> values(out.get(), static_cast<size_t>(result.num_elements()));
    result = Tensor::Of<T>(shape, values);
  });
  return result;
}

}  // namespace lathe::eval
