#include <array>
#include <string_view>

#include "bench/kernels/measure.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

// Copies that move elements: what concats, transposes and gathers of the models do.
namespace lathe::bench {
namespace {

struct Movement {
  const char* name;
  std::array<Shape, 2> inputs;  // an empty one: none
  const char* op;               // of %a and %b
  Shape output;
};

const std::array<Movement, 8> kMovements = {{
    {"concat squeezenet 55",
     {{{1, 64, 55, 55}, {1, 64, 55, 55}}},
     "concat(%a, %b) {axis = 1}",
     {1, 128, 55, 55}},
    {"concat densenet 14",
     {{{1, 512, 14, 14}, {1, 32, 14, 14}}},
     "concat(%a, %b) {axis = 1}",
     {1, 544, 14, 14}},
    {"concat last axis", {{{512, 48}, {512, 80}}}, "concat(%a, %b) {axis = 1}", {512, 128}},
    {"transpose heads",
     {{{1, 128, 12, 64}, {}}},
     "transpose(%a) {perm = [0, 2, 1, 3]}",
     {1, 12, 128, 64}},
    {"transpose channels last",
     {{{1, 256, 28, 28}, {}}},
     "transpose(%a) {perm = [0, 2, 3, 1]}",
     {1, 28, 28, 256}},
    {"transpose matrix", {{{768, 1024}, {}}}, "transpose(%a)", {1024, 768}},
    {"transpose image",
     {{{1, 224, 224, 3}, {}}},
     "transpose(%a) {perm = [0, 3, 1, 2]}",
     {1, 3, 224, 224}},
    {"shuffle", {{{1, 4, 28, 784}, {}}}, "transpose(%a) {perm = [0, 2, 1, 3]}", {1, 28, 4, 784}},
}};

std::string TypeOf(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += StrCat(text.empty() ? "" : ", ", extent);
  return StrCat("v_tensor<[", text, "], f32>");
}

Job JobOf(const Movement& m) {
  Job job;
  job.name = m.name;
  std::string arguments, types;
  for (size_t i = 0; i < m.inputs.size() && !m.inputs[i].empty(); ++i) {
    const char* comma = i == 0 ? "" : ", ";
    arguments += StrCat(comma, i == 0 ? "%a: " : "%b: ", TypeOf(m.inputs[i]));
    types += comma + TypeOf(m.inputs[i]);
    job.inputs.push_back(RandomTensor(ElementType::kF32, m.inputs[i], i + 1));
  }
  const std::string result = TypeOf(m.output);
  job.text = StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(", arguments, "):\n%r = nn.",
                    m.op, " : (", types, ") -> ", result, "\nbuiltin.return(%r) : (", result,
                    ") -> ()\n})\n}\n");
  job.output = Tensor(ElementType::kF32, m.output);
  job.bytes = 2 * static_cast<double>(job.output.byte_size());
  return job;
}

}  // namespace

std::vector<Job> MovementJobs(std::span<char* const>) {
  std::vector<Job> jobs;
  for (const Movement& m : kMovements) jobs.push_back(JobOf(m));
  return jobs;
}

}  // namespace lathe::bench
