// What C++ sees of a program y[N] = 2 * x[N], given as a file, through lathe/runtime/model.h alone.
// Prints "fine".

#include "model_check.h"

#include <string_view>

namespace {

std::string Check(const char* path) {
  const Model model(path, {.threads = 2});
  if (model.num_inputs() != 1 || model.num_outputs() != 1) return "ports";
  if (std::string_view(model.input(0).name) != "x") return "name";
  const std::vector<float> x = {1, 2, 3};
  const std::vector<int64_t> shape = {3};
  const ArrayView in = ArrayView::Of(shape, x.data());
  const std::vector<Array> out = model.Run({&in, 1});
  const auto y = out[0].as<float>();
  if (out[0].shape() != shape || y[0] != 2 || y[1] != 4 || y[2] != 6) return "values";
  if (ErrorOf([&] { (void)out[0].as<int>(); }).substr(0, 13) != "type/element:") return "type";
  const std::vector<double> wrong = {1};
  const ArrayView of_doubles = ArrayView::Of({shape.data(), 1}, wrong.data());
  const std::string error = ErrorOf([&] { model.Run({&of_doubles, 1}); });
  if (error != "run/input-type: input 'x' is f64[3]; expected v_tensor<[N], f32>") return error;
  return "fine";
}

}  // namespace

int main(int argc, char** argv) { return Report(argc, argv, Check); }
