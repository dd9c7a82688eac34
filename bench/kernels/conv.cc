#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "bench/kernels/measure.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe::bench {
namespace {

// A layer with square planes and kernels; the padding keeps the plane where the stride is 1.
struct Layer {
  const char* model;
  int64_t channels, filters, extent, kernel, stride, groups = 1;
};

constexpr auto kLayers = std::to_array<Layer>({
    {"resnet50", 3, 64, 224, 7, 2},        {"resnet50", 64, 64, 56, 1, 1},
    {"resnet50", 64, 64, 56, 3, 1},        {"resnet50", 64, 256, 56, 1, 1},
    {"resnet50", 256, 64, 56, 1, 1},       {"resnet50", 256, 128, 56, 1, 1},
    {"resnet50", 128, 128, 56, 3, 2},      {"resnet50", 256, 512, 56, 1, 2},
    {"resnet50", 128, 512, 28, 1, 1},      {"resnet50", 512, 128, 28, 1, 1},
    {"resnet50", 128, 128, 28, 3, 1},      {"resnet50", 256, 256, 28, 3, 2},
    {"resnet50", 512, 1024, 28, 1, 2},     {"resnet50", 256, 1024, 14, 1, 1},
    {"resnet50", 1024, 256, 14, 1, 1},     {"resnet50", 256, 256, 14, 3, 1},
    {"resnet50", 512, 512, 14, 3, 2},      {"resnet50", 1024, 2048, 14, 1, 2},
    {"resnet50", 512, 2048, 7, 1, 1},      {"resnet50", 2048, 512, 7, 1, 1},
    {"resnet50", 512, 512, 7, 3, 1},       {"vgg19", 3, 64, 224, 3, 1},
    {"vgg19", 64, 64, 224, 3, 1},          {"vgg19", 64, 128, 112, 3, 1},
    {"vgg19", 128, 256, 56, 3, 1},         {"vgg19", 256, 512, 28, 3, 1},
    {"vgg19", 512, 512, 14, 3, 1},         {"densenet", 128, 32, 56, 3, 1},
    {"densenet", 128, 32, 28, 3, 1},       {"densenet", 128, 32, 14, 3, 1},
    {"densenet", 128, 32, 7, 3, 1},        {"densenet", 288, 128, 28, 1, 1},
    {"densenet", 544, 128, 14, 1, 1},      {"densenet", 864, 128, 7, 1, 1},
    {"inception", 192, 64, 28, 1, 1},      {"inception", 64, 96, 28, 3, 1},
    {"inception", 128, 160, 14, 3, 1},     {"inception", 576, 224, 14, 1, 1},
    {"inception", 192, 320, 7, 3, 1},      {"squeezenet", 3, 64, 224, 3, 2},
    {"squeezenet", 64, 16, 55, 1, 1},      {"squeezenet", 16, 64, 55, 1, 1},
    {"squeezenet", 16, 64, 55, 3, 1},      {"squeezenet", 32, 128, 27, 3, 1},
    {"squeezenet", 64, 256, 13, 3, 1},     {"squeezenet", 512, 1000, 13, 1, 1},
    {"shufflenet", 272, 136, 28, 1, 1, 4}, {"mobilenet", 96, 24, 56, 1, 1},
    {"mobilenet", 24, 144, 56, 1, 1},      {"mobilenet", 960, 160, 7, 1, 1},
    {"mobilenet", 3, 32, 224, 3, 2},
});

std::string TypeOf(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += StrCat(text.empty() ? "" : ", ", extent);
  return StrCat("v_tensor<[", text, "], f32>");
}

Job JobOf(const Layer& l) {
  const int64_t pad = (l.kernel - 1) / 2;
  const int64_t out = (l.extent + 2 * pad - l.kernel) / l.stride + 1;
  const Shape x{1, l.channels, l.extent, l.extent},
      w{l.filters, l.channels / l.groups, l.kernel, l.kernel}, b{l.filters},
      y{1, l.filters, out, out};
  const std::string tx = TypeOf(x), tw = TypeOf(w), tb = TypeOf(b), ty = TypeOf(y);
  Job job;
  job.name = StrCat("conv ", l.model, " ", l.channels, " ", l.filters, " ", l.extent, " ", l.kernel,
                    " ", l.stride, l.groups > 1 ? StrCat(" ", l.groups) : "");
  job.text =
      StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: ", tx, ", %w: ", tw, ", %b: ", tb,
             "):\n%p = nn.conv(%x, %w, %b) {group = ", l.groups, ", strides = [", l.stride, ", ",
             l.stride, "], pads = [", pad, ", ", pad, ", ", pad, ", ", pad, "]} : (", tx, ", ", tw,
             ", ", tb, ") -> ", ty, "\n%r = nn.relu(%p) : (", ty, ") -> ", ty,
             "\nbuiltin.return(%r) : (", ty, ") -> ()\n})\n}\n");
  job.inputs = {RandomTensor(ElementType::kF32, x, 1), RandomTensor(ElementType::kF32, w, 2),
                RandomTensor(ElementType::kF32, b, 3)};
  job.constant = {false, true, true};
  job.output = Tensor(ElementType::kF32, y);
  job.flops = 2.0 * static_cast<double>(job.output.num_elements() * w[1] * w[2] * w[3]);
  job.bytes = 0;
  for (const Tensor& t : job.inputs) job.bytes += static_cast<double>(t.byte_size());
  job.bytes += static_cast<double>(job.output.byte_size());
  return job;
}

}  // namespace

// MODEL, or "all", or CHANNELS FILTERS EXTENT KERNEL STRIDE [GROUPS] [assembly]
std::vector<Job> ConvJobs(std::span<char* const> arguments) {
  std::vector<Job> jobs;
  if (arguments.size() >= 5) {
    int64_t numbers[6] = {0, 0, 0, 0, 0, 1};
    for (size_t i = 0; i < arguments.size() && i < 6; ++i) {
      if (std::atoll(arguments[i]) > 0) numbers[i] = std::atoll(arguments[i]);
    }
    const auto [c, f, e, k, s, g] = numbers;
    Job job = JobOf({"layer", c, f, e, k, s, g});
    job.assembly = std::string_view(arguments.back()) == "assembly";
    return {job};
  }
  const std::string_view wanted = arguments.empty() ? "all" : arguments[0];
  for (const Layer& layer : kLayers) {
    if (wanted == "all" || wanted == layer.model) jobs.push_back(JobOf(layer));
  }
  return jobs;
}

}  // namespace lathe::bench
