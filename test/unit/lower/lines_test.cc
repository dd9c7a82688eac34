#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string Type(std::string_view shape, std::string_view element) {
  return StrCat("v_tensor<", shape, ", ", element, ">");
}

// `%r = op(%a) {attributes}`
Case Unary(std::string_view op, std::string_view attributes, const std::string& from,
           const std::string& to) {
  return {{from}, StrCat("%r = nn.", op, "(%a) {", attributes, "} : (", from, ") -> ", to), to};
}

// A running sum or product along a constant axis.
Case Running(std::string_view op, int64_t axis, std::string_view attributes, const std::string& t) {
  return {{t},
          StrCat("%x = builtin.constant() {value = tensor<[], i64> [", axis,
                 "]} : () -> v_tensor<[], i64>\n%r = nn.", op, "(%a, %x) {", attributes, "} : (", t,
                 ", v_tensor<[], i64>) -> ", t),
          t};
}

class LinesTest : public LowerTest {};

TEST_F(LinesTest, PositionsOfTheBest) {
  for (const char* element : {"f32", "i32", "u8"}) {
    for (const char* op : {"arg_max", "arg_min"}) {
      const std::string t = Type("[3, 7, 19]", element);
      Expect(Unary(op, "axis = 1", t, Type("[3, 1, 19]", "i64")), "lines");
      Expect(Unary(op, "axis = -1, keepdims = false", t, Type("[3, 7]", "i64")), "lines");
      Expect(Unary(op, "axis = 0, select_last_index = true", t, Type("[1, 7, 19]", "i64")),
             "lines");
    }
  }
  for (const int64_t n : {1, 6, 17}) {
    symbol_ = n;
    Expect(Unary("arg_max", "axis = 1", Type("[N, M, L]", "f32"), Type("[N, 1, L]", "i64")),
           "lines");
    Expect(Unary("arg_max", "axis = 1, select_last_index = true", Type("[N, M]", "f64"),
                 Type("[N, 1]", "i64")),
           "lines");
  }
}

TEST_F(LinesTest, Hardmax) {
  for (const char* axis : {"axis = 0", "axis = 1", "axis = -1"}) {
    const std::string t = Type("[3, 5, 21]", "f32");
    Expect(Unary("hardmax", axis, t, t), "lines");
  }
}

TEST_F(LinesTest, RunningSumsAndProducts) {
  for (const char* attributes :
       {"", "exclusive = true", "reverse = true", "exclusive = true, reverse = true"}) {
    for (const int64_t axis : {0, 1, -1}) {
      Expect(Running("cum_sum", axis, attributes, Type("[3, 5, 21]", "f32")), "lines", 1e-5);
      Expect(Running("cum_prod", axis, attributes, Type("[N, 5, 2]", "i32")), "lines");
    }
  }
  Expect(Running("cum_sum", 0, "", Type("[0, 5]", "f32")), "lines");
}

TEST_F(LinesTest, SaysWhyNot) {
  const std::string t = Type("[3, 5]", "f32"), axis = Type("[]", "i64");
  const std::string why =
      Refusal({{t, axis}, StrCat("%r = nn.cum_sum(%a, %b) : (", t, ", ", axis, ") -> ", t), t});
  EXPECT_NE(why.find("lines: the axis is not known"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
