#include <array>

#include "test/unit/lower/lower_util.h"

// Elementwise operations whose operands may be broadcast, which only a run knows.
namespace lathe::lower {
namespace {

class OpenBroadcastTest : public LowerTest {
 protected:
  using Sizes = std::map<std::string, int64_t>;

  static Case Of(const std::string& element, const std::string& ops) {
    const auto type = [&](const char* shape) {
      return StrCat("v_tensor<", shape, ", ", element, ">");
    };
    const std::string x = type("[N, L]"), m = type("[A, B]"), b = type("[C]");
    const std::string sum = type("[broadcast(A, N), broadcast(B, L)]");
    const std::string all = type("[broadcast(A, N), broadcast(B, C, L)]");
    return {{x, m, b},
            StrCat("%p = nn.add(%a, %b) : (", x, ", ", m, ") -> ", sum, "\n%q = nn.", ops,
                   "(%p, %c) : (", sum, ", ", b, ") -> ", all, "\n%r = nn.add(%q, %q) : (", all,
                   ", ", all, ") -> ", all),
            all};
  }

  void ExpectAt(const Case& c, Sizes sizes) {
    std::string text;
    for (const auto& [name, size] : sizes) text += StrCat(name, "=", size, " ");
    SCOPED_TRACE(text);
    sizes_ = std::move(sizes);
    Expect(c, "elementwise");
  }
};

TEST_F(OpenBroadcastTest, AnyExtentMayBeOne) {
  for (const char* element : {"f32", "f64", "i64", "u8"}) {
    SCOPED_TRACE(element);
    const Case c = Of(element, "mul");
    ExpectAt(c, {{"N", 3}, {"L", 37}, {"A", 3}, {"B", 37}, {"C", 37}});
    ExpectAt(c, {{"N", 3}, {"L", 37}, {"A", 1}, {"B", 37}, {"C", 1}});
    ExpectAt(c, {{"N", 3}, {"L", 37}, {"A", 3}, {"B", 1}, {"C", 37}});
    ExpectAt(c, {{"N", 1}, {"L", 1}, {"A", 4}, {"B", 70}, {"C", 1}});
    ExpectAt(c, {{"N", 1}, {"L", 1}, {"A", 1}, {"B", 1}, {"C", 1}});
    ExpectAt(c, {{"N", 2}, {"L", 1}, {"A", 1}, {"B", 1}, {"C", 16}});
    ExpectAt(c, {{"N", 2}, {"L", 2}, {"A", 2}, {"B", 2}, {"C", 1}});
  }
}

TEST_F(OpenBroadcastTest, OfNothing) {
  const Case c = Of("f32", "mul");
  ExpectAt(c, {{"N", 0}, {"L", 5}, {"A", 1}, {"B", 1}, {"C", 5}});
  ExpectAt(c, {{"N", 3}, {"L", 0}, {"A", 3}, {"B", 1}, {"C", 1}});
}

// Neither 4*B nor 4*F is 1, so they are equal: the program knows it, the function alone does not.
TEST_F(OpenBroadcastTest, OfExpressions) {
  const std::string a = "v_tensor<[A*C, 4*B], f32>", b = "v_tensor<[D*E, 4*F], f32>";
  const std::string sum = "v_tensor<[broadcast(A*C, D*E), 4*B], f32>";
  const Case c{{a, b}, StrCat("%r = nn.add(%a, %b) : (", a, ", ", b, ") -> ", sum), sum};
  ExpectAt(c, {{"A", 2}, {"C", 3}, {"D", 3}, {"E", 2}, {"B", 0}, {"F", 0}});
  ExpectAt(c, {{"A", 2}, {"C", 3}, {"D", 1}, {"E", 1}, {"B", 5}, {"F", 5}});
  ExpectAt(c, {{"A", 1}, {"C", 1}, {"D", 3}, {"E", 1}, {"B", 5}, {"F", 5}});
}

// Axes that all operands have, or have not, are one loop; one that may be broadcast stays apart.
TEST_F(OpenBroadcastTest, NeighborsAreOneLoop) {
  const std::string x = "v_tensor<[N, 3, H, W], f32>", y = "v_tensor<[N, 1, H, W], f32>";
  const std::string z = "v_tensor<[A, W], f32>", sum = "v_tensor<[N, 3, broadcast(A, H), W], f32>";
  const Case closed{{x, y}, StrCat("%r = nn.add(%a, %b) : (", x, ", ", y, ") -> ", x), x};
  const Case open{{x, y, z},
                  StrCat("%p = nn.add(%a, %b) : (", x, ", ", y, ") -> ", x,
                         "\n%r = nn.mul(%p, %c) : (", x, ", ", z, ") -> ", sum),
                  sum};
  const Case whole{{x, x}, StrCat("%r = nn.add(%a, %b) : (", x, ", ", x, ") -> ", x), x};
  for (const auto& [n, h, w] : std::vector<std::array<int64_t, 3>>{
           {1, 7, 5}, {3, 1, 33}, {2, 40, 1}, {0, 4, 4}, {2, 0, 3}, {2, 130, 130}}) {
    ExpectAt(closed, {{"N", n}, {"H", h}, {"W", w}});
    ExpectAt(whole, {{"N", n}, {"H", h}, {"W", w}});
    ExpectAt(open, {{"N", n}, {"H", h}, {"W", w}, {"A", h}});
    ExpectAt(open, {{"N", n}, {"H", h}, {"W", w}, {"A", 1}});
  }
}

TEST_F(OpenBroadcastTest, AfterAProduct) {
  const Case c{
      {"v_tensor<[M, 7], f32>", "v_tensor<[7, 19], f32>", "v_tensor<[M, K], f32>"},
      "%p = nn.matmul(%a, %b) : (v_tensor<[M, 7], f32>, v_tensor<[7, 19], f32>) -> "
      "v_tensor<[M, 19], f32>\n%r = nn.add(%p, %c) : (v_tensor<[M, 19], f32>, v_tensor<[M, K], "
      "f32>) -> v_tensor<[M, 19], f32>",
      "v_tensor<[M, 19], f32>"};
  for (const int64_t k : {1, 19}) {
    sizes_ = {{"M", 11}, {"K", k}};
    Expect(c, "matmul", 1e-5);
  }
}

}  // namespace
}  // namespace lathe::lower
