#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/support/tensor.h"

namespace lathe {

/// Collects the elements of a tensor that are written as text, such as the cells of a table.
class ElementReader {
 public:
  /// Errors: run/input-value for complex numbers, which have no such text.
  explicit ElementReader(ElementType type);

  /// The next element: a number that the type can hold, "nan" and "inf" for floats, for bool also
  /// "true" and "false"; for strings the text itself. Errors: run/input-value.
  void Add(std::string_view text);
  size_t size() const { return size_; }
  /// The elements so far, NumElements(shape) of them, as a tensor.
  Tensor Finish(Shape shape) &&;

 private:
  void AddInteger(std::string_view text);
  void AddBool(std::string_view text);

  ElementType type_;
  size_t size_ = 0;
  std::vector<int64_t> integers_;  // of u64 the same bits
  std::vector<double> numbers_;
  std::vector<std::string> strings_;
};

}  // namespace lathe
