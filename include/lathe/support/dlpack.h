#pragma once

#include "lathe/support/tensor.h"

// From <dlpack/dlpack.h>, which users of this header need not include.
struct DLManagedTensor;

namespace lathe {

// Shares the bytes with the result, which the taker frees by its deleter. Throws
// unsupported/dlpack for strings and for types that DLPack cannot name. bool is kDLBool (DLPack
// 1.0), index is a 64-bit signed integer, f8 and f4 have the codes of DLPack 1.1.
[[nodiscard]] DLManagedTensor* ToDlpack(const Tensor& tensor);

// Takes `managed` over (its deleter is called when the last tensor is gone, or before this throws).
// Row-major CPU memory is shared, read-only; other strides are copied. Throws unsupported/dlpack
// for other devices and types, invalid-argument/dlpack for nonsense.
[[nodiscard]] Tensor FromDlpack(DLManagedTensor* managed);

}  // namespace lathe
