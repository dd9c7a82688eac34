// What the run time alone makes of a program on strings, given as a file: outputs "words", those of
// input "x" in lower case and without "the", and "codes", 3 for "a", 4 for "b". Prints "fine".

#include <string>
#include <string_view>
#include <vector>

#include "model_check.h"

namespace {

std::string Check(const char* path) {
  const Model model(path, {.threads = 1});
  if (model.input(0).element != LATHE_STRING) return "element";
  if (std::string_view(model.input(0).type) != "v_tensor<[N], string>") return "type";
  const std::vector<const char*> words = {"a", "THE", "B", "", "the", "A"};
  const std::vector<int64_t> shape = {6};
  const ArrayView in = ArrayView::Of(shape, words.data());
  for (int i = 0; i < 2; ++i) {
    const std::vector<Array> out = model.Run({&in, 1});
    if (out[0].shape() != std::vector<int64_t>{4}) return "shape";
    if (out[0].strings() != std::vector<std::string_view>{"a", "b", "", "a"}) return "words";
    const auto codes = out[1].as<int64_t>();
    if (codes.size() != 4 || codes[0] != 3 || codes[1] != 4 || codes[2] != -1) return "codes";
    if (ErrorOf([&] { (void)out[1].strings(); }).substr(0, 13) != "type/element:") return "as";
  }
  const std::vector<const char*> none = {nullptr};
  const ArrayView null = ArrayView::Of({shape.data(), 0}, none.data());
  if (ErrorOf([&] { model.Run({&null, 1}); }).substr(0, 16) != "run/input-shape:") return "rank";
  const std::vector<int64_t> one = {1};
  const ArrayView missing = ArrayView::Of(one, none.data());
  return ErrorOf([&] { model.Run({&missing, 1}); }) == "run/input-data: a string is a null pointer"
             ? "fine"
             : "null";
}

}  // namespace

int main(int argc, char** argv) { return Report(argc, argv, Check); }
