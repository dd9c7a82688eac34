// A model in a program of one's own: loaded, compiled, run, saved, loaded again.
#include <lathe/lathe.h>
#include <lathe/support/error.h>

#include <algorithm>
#include <cstdio>

namespace {

// Largest element of the first row.
int64_t Best(const lathe::Tensor& scores) {
  const auto row = scores.data<float>().first(static_cast<size_t>(scores.dim(-1)));
  return std::max_element(row.begin(), row.end()) - row.begin();
}

void Run(const std::string& model_file, const std::string& executable_file) {
  const lathe::Model model = lathe::Load(model_file);
  const lathe::Executable exe = lathe::Compile(model, {.threads = 1});
  for (const lathe::Port& port : exe.inputs()) std::printf("input %s\n", port.name.c_str());

  // A vertical stroke: a one.
  lathe::Tensor image(lathe::ElementType::kF32, {1, 1, 8, 8});
  for (int row = 0; row < 8; ++row) {
    for (int column = 3; column < 5; ++column) {
      image.mutable_data<float>()[static_cast<size_t>(8 * row + column)] = 1;
    }
  }
  const lathe::NamedValues out = exe.Run({{"image", image}});
  std::printf("it is a %lld\n", static_cast<long long>(Best(out[0].second.tensor())));

  exe.Save(executable_file);
  const lathe::Executable again = lathe::Executable::Load(executable_file);
  lathe::Tensor scores(lathe::ElementType::kF32, {1, 10});
  again.Run({&image, 1}, {&scores, 1});
  const bool same = scores == out[0].second.tensor();
  std::printf("loaded again, it gives %s\n", same ? "the same bits" : "something else");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: embed MODEL.onnx OUT.lx\n");
    return 2;
  }
  try {
    Run(argv[1], argv[2]);
  } catch (const lathe::Error& error) {
    std::fputs(error.Render().c_str(), stderr);
    return 1;
  }
  return 0;
}
