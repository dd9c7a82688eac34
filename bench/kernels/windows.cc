#include <array>
#include <string_view>

#include "bench/kernels/measure.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

// Depthwise convolutions and pools of the models.
namespace lathe::bench {
namespace {

struct Layer {
  const char* model;
  const char* op;
  int64_t channels, extent, kernel, stride, pad, end;  // padding at the beginnings and the ends
};

constexpr auto kDepthwise = std::to_array<Layer>({
    {"mobilenet", "conv", 32, 112, 3, 1, 1, 1},
    {"mobilenet", "conv", 96, 112, 3, 2, 1, 1},
    {"mobilenet", "conv", 144, 56, 3, 1, 1, 1},
    {"mobilenet", "conv", 144, 56, 3, 2, 1, 1},
    {"mobilenet", "conv", 192, 28, 3, 1, 1, 1},
    {"mobilenet", "conv", 192, 28, 3, 2, 1, 1},
    {"mobilenet", "conv", 384, 14, 3, 1, 1, 1},
    {"mobilenet", "conv", 576, 14, 3, 1, 1, 1},
    {"mobilenet", "conv", 576, 14, 3, 2, 1, 1},
    {"mobilenet", "conv", 960, 7, 3, 1, 1, 1},
    {"shufflenet", "conv", 112, 56, 3, 2, 1, 1},
    {"shufflenet", "conv", 136, 28, 3, 1, 1, 1},
    {"shufflenet", "conv", 272, 14, 3, 1, 1, 1},
    {"shufflenet", "conv", 544, 7, 3, 1, 1, 1},
});

constexpr auto kPools = std::to_array<Layer>({
    {"resnet50", "max_pool", 64, 112, 3, 2, 1, 1},
    {"resnet50", "global_average_pool", 2048, 7, 7, 1, 0, 0},
    {"squeezenet", "max_pool", 64, 111, 3, 2, 0, 0},
    {"squeezenet", "max_pool", 128, 55, 3, 2, 0, 0},
    {"squeezenet", "max_pool", 256, 27, 3, 2, 0, 0},
    {"squeezenet", "global_average_pool", 1000, 13, 13, 1, 0, 0},
    {"vgg19", "max_pool", 64, 224, 2, 2, 0, 0},
    {"vgg19", "max_pool", 512, 28, 2, 2, 0, 0},
    {"inception", "max_pool", 192, 56, 3, 2, 0, 1},
    {"inception", "average_pool", 256, 28, 3, 1, 1, 1},
    {"inception", "average_pool", 576, 14, 3, 1, 1, 1},
    {"inception", "max_pool", 1024, 7, 3, 1, 1, 1},
    {"densenet", "average_pool", 256, 28, 2, 2, 0, 0},
    {"shufflenet", "average_pool", 136, 28, 3, 2, 1, 1},
});

std::string TypeOf(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += StrCat(text.empty() ? "" : ", ", extent);
  return StrCat("v_tensor<[", text, "], f32>");
}

Job JobOf(const Layer& l) {
  const std::string_view op = l.op;
  const bool is_conv = op == "conv", is_global = op.starts_with("global");
  const int64_t out = (l.extent + l.pad + l.end - l.kernel) / l.stride + 1;
  const Shape x{1, l.channels, l.extent, l.extent}, w{l.channels, 1, l.kernel, l.kernel},
      b{l.channels}, y{1, l.channels, out, out};
  const std::string tx = TypeOf(x), tw = TypeOf(w), tb = TypeOf(b), ty = TypeOf(y);
  const std::string attributes =
      StrCat("kernel_shape = [", l.kernel, ", ", l.kernel, "], strides = [", l.stride, ", ",
             l.stride, "], pads = [", l.pad, ", ", l.pad, ", ", l.end, ", ", l.end, "]");
  Job job;
  job.name =
      StrCat(l.op, " ", l.model, " ", l.channels, " ", l.extent, " ", l.kernel, " ", l.stride);
  job.text = StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: ", tx,
                    is_conv ? StrCat(", %w: ", tw, ", %b: ", tb) : "", "):\n");
  if (is_conv) {
    job.text +=
        StrCat("%p = nn.conv(%x, %w, %b) {group = ", l.channels, ", ", attributes, "} : (", tx,
               ", ", tw, ", ", tb, ") -> ", ty, "\n%r = nn.relu(%p) : (", ty, ") -> ", ty);
  } else {
    job.text +=
        StrCat("%r = nn.", op, "(%x) {", is_global ? "" : attributes, "} : (", tx, ") -> ", ty);
  }
  job.text += StrCat("\nbuiltin.return(%r) : (", ty, ") -> ()\n})\n}\n");
  job.inputs = {RandomTensor(ElementType::kF32, x, 1)};
  if (is_conv) {
    job.inputs.push_back(RandomTensor(ElementType::kF32, w, 2));
    job.inputs.push_back(RandomTensor(ElementType::kF32, b, 3));
    job.constant = {false, true, true};
  }
  job.output = Tensor(ElementType::kF32, y);
  const auto per_output = static_cast<double>(l.kernel * l.kernel * (is_conv ? 2 : 1));
  job.flops = per_output * static_cast<double>(job.output.num_elements());
  for (const Tensor& t : job.inputs) job.bytes += static_cast<double>(t.byte_size());
  job.bytes += static_cast<double>(job.output.byte_size());
  return job;
}

std::vector<Job> JobsOf(std::span<const Layer> layers, std::span<char* const> arguments) {
  const std::string_view wanted = arguments.empty() ? "all" : arguments[0];
  std::vector<Job> jobs;
  for (const Layer& layer : layers) {
    if (wanted == "all" || wanted == layer.model) jobs.push_back(JobOf(layer));
  }
  return jobs;
}

}  // namespace

std::vector<Job> DepthwiseJobs(std::span<char* const> arguments) {
  return JobsOf(kDepthwise, arguments);
}

std::vector<Job> PoolJobs(std::span<char* const> arguments) { return JobsOf(kPools, arguments); }

}  // namespace lathe::bench
