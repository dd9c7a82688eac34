#include <algorithm>
#include <array>
#include <string_view>

#include "bench/kernels/measure.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe::bench {
namespace {

std::string TypeOf(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += StrCat(text.empty() ? "" : ", ", extent);
  return StrCat("v_tensor<[", text, "], f32>");
}

// One operation on f32 inputs, of which the first has the result's shape unless it is given.
Job JobOf(std::string name, std::string_view op, std::string_view attributes,
          const std::vector<Shape>& inputs, Shape result, double flops = 0) {
  Job job;
  job.name = std::move(name);
  std::string arguments, operands, types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string type = TypeOf(inputs[i]), comma = i == 0 ? "" : ", ";
    arguments += StrCat(comma, "%x", i, ": ", type);
    operands += StrCat(comma, "%x", i);
    types += StrCat(comma, type);
    job.inputs.push_back(RandomTensor(ElementType::kF32, inputs[i], i + 1));
    job.bytes += static_cast<double>(job.inputs.back().byte_size());
  }
  const std::string to = TypeOf(result);
  job.text = StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(", arguments, "):\n%r = nn.",
                    op, "(", operands, ") {", attributes, "} : (", types, ") -> ", to,
                    "\nbuiltin.return(%r) : (", to, ") -> ()\n})\n}\n");
  job.output = Tensor(ElementType::kF32, std::move(result));
  job.bytes += static_cast<double>(job.output.byte_size());
  job.flops = flops;
  return job;
}

Job Attention(int64_t queries, int64_t keys) {
  const Shape q{1, queries, 768}, k{1, keys, 768};
  return JobOf(StrCat("attention 12x64 ", queries, " ", keys), "attention",
               "q_num_heads = 12, kv_num_heads = 12", {q, k, k}, q,
               4.0 * static_cast<double>(queries * keys * 768));
}

}  // namespace

// Softmax, normalizations, sums and attention as the models have them.
std::vector<Job> RowJobs(std::span<char* const>) {
  const Shape scores{12, 128, 128}, tokens{128, 768}, features{768};
  std::vector<Job> jobs;
  jobs.push_back(JobOf("softmax 12x128x128", "softmax", "axis = -1", {scores}, scores));
  jobs.push_back(JobOf("softmax 12x128x128 across", "softmax", "axis = 1", {scores}, scores));
  jobs.push_back(JobOf("layer_normalization 128x768", "layer_normalization", "axis = -1",
                       {tokens, features, features}, tokens));
  jobs.push_back(JobOf("instance_normalization 64x256x56", "instance_normalization", "",
                       {{1, 64, 256, 56}, {64}, {64}}, {1, 64, 256, 56}));
  jobs.push_back(Attention(128, 128));
  jobs.push_back(Attention(512, 512));
  jobs.push_back(Attention(1, 128));
  jobs.push_back(Attention(1, 1024));
  return jobs;
}

}  // namespace lathe::bench
