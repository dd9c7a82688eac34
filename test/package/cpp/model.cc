// client_model FILE.lx: a compiled program in C++, by the run time alone.
#include <lathe/runtime/model.h>

#include <array>
#include <cstdio>

int main(int argc, char** argv) try {
  const lathe::runtime::Model model(argc > 1 ? argv[1] : "");
  const std::array<int64_t, 4> shape = {1, 1, 8, 8};
  const std::array<float, 64> image = {};
  const auto in = lathe::runtime::ArrayView::Of(shape, image.data());
  const auto out = model.Run({&in, 1});
  std::printf("%s %.4f\n", model.output(0).name, static_cast<double>(out[0].as<float>()[0]));
  return 0;
} catch (const lathe::runtime::ModelError& error) {
  std::fputs(error.text().c_str(), stderr);
  return 1;
}
