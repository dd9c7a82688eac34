#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// A table of text (RFC 4180): cells between commas, semicolons or tabs, whichever the first line
/// has; in double quotes where they contain one of these, a line break, or quotes, which are
/// doubled.
class CsvTable {
 public:
  /// Blank lines are left out. Errors at `path`: parse/csv for lines of different lengths, and
  /// quotes that do not end.
  CsvTable(std::string_view text, const std::string& path);

  size_t num_rows() const { return lines_.size(); }
  size_t num_columns() const { return num_columns_; }
  std::span<const std::string> row(size_t index) const {
    return std::span(cells_).subspan(index * num_columns_, num_columns_);
  }
  /// Of a row, counted from 1.
  size_t line(size_t row) const { return lines_[row]; }

 private:
  std::vector<std::string> cells_;
  std::vector<size_t> lines_;
  size_t num_columns_ = 0;
};

}  // namespace lathe
