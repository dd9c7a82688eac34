#include "src/driver/csv.h"

#include <algorithm>
#include <cstdint>

#include "lathe/support/error.h"

namespace lathe {
namespace {

Error CsvError(const std::string& path, size_t line, std::string message) {
  return Error(ErrorCode::kParse, "parse/csv", std::move(message)).At(StrCat(path, ":", line));
}

char SeparatorOf(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('\n'));
  for (const char separator : {'\t', ';'}) {
    const bool commas = first.find(',') != std::string_view::npos;
    if (!commas && first.find(separator) != std::string_view::npos) return separator;
  }
  return ',';
}

// Takes cells from the front of a text.
class CellReader {
 public:
  CellReader(std::string_view text, char separator, const std::string& path)
      : text_(text), separator_(separator), path_(path) {}

  bool AtEnd() const { return at_ == text_.size(); }
  size_t line() const { return line_; }

  // True if there was one.
  bool SkipLineBreak() {
    const size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    line_ += at_ != start ? 1 : 0;
    return at_ != start;
  }

  // Up to a separator, which is taken, or the end of the line, which is not.
  std::string Cell(bool& last) {
    std::string cell = at_ < text_.size() && text_[at_] == '"' ? Quoted() : Plain();
    last = at_ == text_.size() || text_[at_] != separator_;
    if (!last) ++at_;
    return cell;
  }

 private:
  std::string Plain() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n' &&
           text_[at_] != '\r') {
      ++at_;
    }
    std::string_view cell = text_.substr(start, at_ - start);
    while (cell.starts_with(' ')) cell.remove_prefix(1);
    while (cell.ends_with(' ')) cell.remove_suffix(1);
    return std::string(cell);
  }

  std::string Quoted() {
    const size_t first_line = line_;
    std::string cell;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"' && (++at_ == text_.size() || text_[at_] != '"')) {
        CheckEnd();
        return cell;
      }
      line_ += text_[at_] == '\n' ? 1 : 0;
      cell += text_[at_];
    }
    throw CsvError(path_, first_line, "a quote does not end");
  }

  void CheckEnd() const {
    if (AtEnd() || text_[at_] == separator_ || text_[at_] == '\n' || text_[at_] == '\r') return;
    throw CsvError(path_, line_, "there is text after the quotes of a cell");
  }

  std::string_view text_;
  char separator_;
  const std::string& path_;
  size_t at_ = 0;
  size_t line_ = 1;
};

}  // namespace

CsvTable::CsvTable(std::string_view text, const std::string& path) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  CellReader reader(text, SeparatorOf(text), path);
  while (!reader.AtEnd()) {
    if (reader.SkipLineBreak()) continue;
    const size_t line = reader.line();
    const size_t before = cells_.size();
    for (bool last = false; !last;) cells_.push_back(reader.Cell(last));
    const size_t count = cells_.size() - before;
    if (lines_.empty()) num_columns_ = count;
    if (count != num_columns_) {
      throw CsvError(path, line,
                     StrCat("this line has ", count, " cells, the first has ", num_columns_));
    }
    lines_.push_back(line);
  }
}

}  // namespace lathe
