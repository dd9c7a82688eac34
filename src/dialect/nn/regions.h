#pragma once

#include <cstdint>

// Where regions of interest may lie, and how closely they are looked at. Beyond, a box of four
// numbers would ask for any amount of work; the interpreter and compiled code refuse the same.
namespace lathe::nn {

// Points of a cell of roi_align along an axis, where the model says how many.
inline constexpr int64_t kMostRoiPoints = 4096;
// Coordinates of roi_align in elements of the image, where the model does not: their magnitude is
// less.
inline constexpr int64_t kFarRoi = int64_t{1} << 20;
// The same of max_roi_pool, which looks at no element twice.
inline constexpr int64_t kFarPooledRoi = 1'000'000'000;

}  // namespace lathe::nn
