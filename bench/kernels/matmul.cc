#include <cstdlib>
#include <set>

#include "bench/kernels/measure.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe::bench {
namespace {

Shape ShapeOf(std::string text) {
  Shape shape;
  for (char* at = text.data(); *at != '\0';) {
    shape.push_back(std::strtoll(at, &at, 10));
    if (*at == 'x') ++at;
  }
  return shape;
}

struct Product {
  Shape x, y, z;
  std::set<std::string> flags;
  ElementType element = ElementType::kF32;

  bool Has(const char* flag) const { return flags.contains(flag); }
  int64_t depth() const { return x[x.size() - (Has("tx") ? 2 : 1)]; }
  double Flops() const { return 2.0 * static_cast<double>(NumElements(z) * depth()); }
  double Bytes() const {
    return static_cast<double>((NumElements(x) + NumElements(y) + NumElements(z)) *
                               BitWidth(element) / 8);
  }
  static int64_t NumElements(const Shape& shape) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    return elements;
  }
  std::string Type(const Shape& shape, bool has_rows) const {
    std::string dims;
    for (size_t a = 0; a < shape.size(); ++a) {
      const bool symbolic = Has("symbolic") && has_rows && a + 2 == shape.size();
      dims += StrCat(a == 0 ? "" : ", ", symbolic ? "N" : StrCat(shape[a]));
    }
    return StrCat("v_tensor<[", dims, "], ", Name(element), ">");
  }
  std::string Text() const {
    const std::string tx = Type(x, true), ty = Type(y, false), tz = Type(z, true);
    return StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: ", tx, ", %y: ", ty,
                  "):\n%z = nn.matmul(%x, %y) {transpose_x = ", Has("tx") ? "true" : "false",
                  ", transpose_y = ", Has("ty") ? "true" : "false", "} : (", tx, ", ", ty, ") -> ",
                  tz, "\nbuiltin.return(%z) : (", tz, ") -> ()\n})\n}\n");
  }
};

Product ProductOf(std::span<char* const> arguments) {
  const Error usage(ErrorCode::kInvalidArgument, "usage", "matmul X Y [FLAG]...");
  if (arguments.size() < 2) throw usage;
  Product p{ShapeOf(arguments[0]), ShapeOf(arguments[1]), {}, {}};
  for (char* const flag : arguments.subspan(2)) p.flags.insert(flag);
  if (p.Has("f64")) p.element = ElementType::kF64;
  if (p.x.size() < 2 || p.y.size() < 2) throw usage;
  p.z = p.x.size() < p.y.size() ? p.y : p.x;
  p.z[p.z.size() - 2] = p.x[p.x.size() - (p.Has("tx") ? 1 : 2)];
  p.z[p.z.size() - 1] = p.y[p.y.size() - (p.Has("ty") ? 2 : 1)];
  return p;
}

}  // namespace

// Shapes such as 128x768 768x64, then flags: `constant` (the right matrix may be packed
// beforehand), `tx`, `ty` (a matrix lies transposed), `symbolic` (the rows are known at run time
// only), `f64`, `assembly` (prints the code).
std::vector<Job> MatmulJobs(std::span<char* const> arguments) {
  const Product p = ProductOf(arguments);
  Job job;
  job.name = "matmul";
  for (char* const a : arguments) job.name += StrCat(" ", a);
  job.text = p.Text();
  job.inputs = {RandomTensor(p.element, p.x, 1), RandomTensor(p.element, p.y, 2)};
  job.constant = {false, p.Has("constant")};
  job.output = Tensor(p.element, p.z);
  job.flops = p.Flops();
  job.bytes = p.Bytes();
  job.assembly = p.Has("assembly");
  return {job};
}

}  // namespace lathe::bench
