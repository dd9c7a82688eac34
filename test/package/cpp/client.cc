// client MODEL: compiles a model and runs it on zeros.
#include <lathe/lathe.h>
#include <lathe/support/error.h>

#include <cstdio>

int main(int argc, char** argv) try {
  const lathe::Model model = lathe::Load(argc > 1 ? argv[1] : "");
  const lathe::Executable exe = lathe::Compile(model, {.threads = 1});
  const lathe::Tensor image(lathe::ElementType::kF32, {1, 1, 8, 8});
  const lathe::NamedValues out = exe.Run({{"image", image}});
  std::printf("%s %.4f\n", out[0].first.c_str(),
              static_cast<double>(out[0].second.tensor().data<float>()[0]));
  return 0;
} catch (const lathe::Error& error) {
  std::fputs(error.Render().c_str(), stderr);
  return 1;
}
