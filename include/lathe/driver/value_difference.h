#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"

/// Results of two runs, compared.
namespace lathe {

/// How two values of one name differ. Numbers agree where |a - b| <= atol + rtol * |b|; NaN agrees
/// with NaN, an infinity with itself.
struct ValueDifference {
  std::string name;
  std::string type;         ///< of the first, "f32[2,3]"
  std::string mismatch;     ///< kinds, types or shapes that differ, or one is missing; or empty
  double max_abs = 0;       ///< largest |a - b|
  double max_rel = 0;       ///< largest |a - b| / |b|
  int64_t elements = 0;     ///< compared
  int64_t beyond = 0;       ///< elements that do not agree
  std::string first_place;  ///< index of the first of them, "[0,3]"; behind one of a list
  std::string first_a, first_b;

  bool agrees() const { return mismatch.empty() && beyond == 0; }
};

/// Values by name, in the order of `a`, then what only `b` has. A single value on each side is
/// compared whatever the names.
std::vector<ValueDifference> CompareValues(const NamedValues& a, const NamedValues& b, double rtol,
                                           double atol);

/// The values in a file of OpenValueFile that holds tensors, in a .npy, or in the .npy files of a
/// folder, by their names. Errors: io/..., parse/..., run/input-file.
NamedValues ReadResults(const std::string& path);
/// Calls values of a folder, which have the names of their files, as `others` are called whose
/// files (FilesOf) these would be.
void RestoreNames(NamedValues& of_folder, const NamedValues& others);

}  // namespace lathe
