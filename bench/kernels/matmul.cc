#include <cstdlib>

#include "bench/kernels/measure.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe::bench {

// M K N
std::vector<Job> MatmulJobs(std::span<char* const> arguments) {
  if (arguments.size() < 3) throw Error(ErrorCode::kInvalidArgument, "usage", "matmul M K N");
  const int64_t m = std::atoll(arguments[0]), k = std::atoll(arguments[1]),
                n = std::atoll(arguments[2]);
  const auto matrix = [](int64_t rows, int64_t columns) {
    return StrCat("v_tensor<[", rows, ", ", columns, "], f32>");
  };
  const std::string x = matrix(m, k), y = matrix(k, n), z = matrix(m, n);
  Job job;
  job.name = StrCat("matmul ", m, " ", k, " ", n);
  job.text = StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: ", x, ", %y: ", y,
                    "):\n%z = nn.matmul(%x, %y) : (", x, ", ", y, ") -> ", z,
                    "\nbuiltin.return(%z) : (", z, ") -> ()\n})\n}\n");
  job.inputs = {RandomTensor(ElementType::kF32, {m, k}, 1),
                RandomTensor(ElementType::kF32, {k, n}, 2)};
  job.output = Tensor(ElementType::kF32, {m, n});
  job.flops = 2.0 * static_cast<double>(m * k * n);
  job.bytes = 4.0 * static_cast<double>(m * k + k * n + m * n);
  return {job};
}

}  // namespace lathe::bench
