#include <bit>
#include <limits>
#include <random>

#include "test/unit/ir/text_util.h"

namespace lathe::testing {
namespace {

class AttributeTextTest : public TextTest {
 protected:
  /// Reads back as the same attribute; returns the text.
  std::string Checked(Attribute a) {
    const std::string text = a.ToString();
    EXPECT_EQ(ParseAttribute(context_, text), a) << text;
    return text;
  }
  std::string Checked(Type t) {
    const std::string text = t.ToString();
    EXPECT_EQ(ParseType(context_, text), t) << text;
    EXPECT_EQ(ParseAttribute(context_, text), TypeAttribute::Get(t)) << text;
    return text;
  }
  Attribute Float(uint64_t bits) {
    return FloatAttribute::Get(context_, std::bit_cast<double>(bits));
  }
  std::string AttributeError(std::string_view text) {
    return ErrorOf([&] { ParseAttribute(context_, text); });
  }
  std::string TypeError(std::string_view text) {
    return ErrorOf([&] { ParseType(context_, text); });
  }
};

TEST_F(AttributeTextTest, Types) {
  for (const char* text : {"f32",
                           "i4",
                           "f8e4m3fn",
                           "c64",
                           "string",
                           "bool",
                           "index",
                           "token",
                           "none",
                           "undefined",
                           "tensor<*, f32>",
                           "tensor<[], i64>",
                           "v_tensor<[0], u8>",
                           "v_tensor<[?, N, 3], f32>",
                           "v_tensor<[N, floordiv(H + 1, 2)], f32>",
                           "tensor<[\"a b\"], f32>",
                           "list<i64>",
                           "dict<string, list<tensor<*, bf16>>>",
                           "optional<none>",
                           "tuple<>",
                           "tuple<f32, token>",
                           "stack<f32, f32>",
                           "t.vec<7>",
                           "list<t.vec<0>>"}) {
    EXPECT_EQ(Checked(ParseType(context_, text)), text);
  }
}

TEST_F(AttributeTextTest, SimpleAttributes) {
  for (const char* text : {"true",
                           "false",
                           "0",
                           "-5",
                           "9223372036854775807",
                           "-9223372036854775808",
                           "0.5",
                           "-0.0",
                           "1e+300",
                           "5e-324",
                           "inf",
                           "-inf",
                           "nan",
                           "nan(0x7ff0000000000001)",
                           "nan(0xfff8000000000000)",
                           "\"\"",
                           "\"a \\\"b\\\" \\\\ \\n\"",
                           "[]",
                           "[1, 2.0, [true]]",
                           "{}",
                           "{a = 1, \"b c\" = {d = f32}}",
                           "dim<N + 1>",
                           "dim<?>",
                           "loc(\"a\")",
                           "loc(unknown)",
                           "loc(\"f.py\":3:5)",
                           "loc(fused[\"a\", \"f\":1:2])",
                           "t.pair<1, t.vec<2>>",
                           "[tensor<[2], f32>, tensor<[2], f32> [1.0, 2.0]]"}) {
    EXPECT_EQ(Checked(ParseAttribute(context_, text)), text);
  }
}

TEST_F(AttributeTextTest, EveryDoubleSurvives) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) Checked(Float(random()));
  for (const uint64_t bits : {0x7ff0000000000000U, 0xfff0000000000000U, 0x7ff8000000000000U,
                              0x7ff8000000000001U, 0xffffffffffffffffU, 0x8000000000000000U}) {
    Checked(Float(bits));
  }
}

TEST_F(AttributeTextTest, EveryStringSurvives) {
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  Checked(StrAttribute::Get(context_, all));
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = static_cast<char>(random());
    const Attribute s = StrAttribute::Get(context_, text);
    Checked(s);
    const NamedAttribute entry{s.cast<StrAttribute>(), s};
    Checked(DictionaryAttribute::Get(context_, {&entry, 1}));
    Checked(LocationAttribute::Get(context_, Location::FileLineCol(context_, text, 1, 2)));
  }
}

TEST_F(AttributeTextTest, TensorsOfEveryType) {
  std::mt19937 random(1);
  for (const ElementType e : AllElementTypes()) {
    if (e == ElementType::kString) continue;
    for (const int64_t n : {0, 1, 3, 300}) {
      Tensor t(e, {n, 1});
      for (size_t i = 0; i < t.byte_size(); ++i) {
        const unsigned bits = e == ElementType::kBool ? random() % 2 : random() % 256;
        t.mutable_raw()[i] = static_cast<std::byte>(bits);
      }
      if (IsSubByte(e) && n % 4 != 0) t.mutable_raw()[t.byte_size() - 1] = std::byte{1};
      Checked(TensorAttribute::Get(context_, t));
    }
  }
  Checked(TensorAttribute::Get(context_, Tensor::Of<std::string>({2}, {"a\"\n", ""})));
  Checked(TensorAttribute::Get(context_, Tensor::Scalar<float>(-0.0f)));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Checked(TensorAttribute::Get(context_, Tensor::Of<float>({2}, {infinity, 1.0f}))),
            "tensor<[2], f32> hex \"0000807f0000803f\"");
  EXPECT_EQ(Checked(TensorAttribute::Get(context_, Tensor::Of<uint64_t>({1}, {UINT64_MAX}))),
            "tensor<[1], u64> [18446744073709551615]");
  EXPECT_EQ(Checked(TensorAttribute::Get(context_, Tensor::Of<bool>({2}, {true, false}))),
            "tensor<[2], bool> [true, false]");
}

TEST_F(AttributeTextTest, EveryFloat32InATensorSurvives) {
  std::mt19937 random(1);
  std::vector<float> values;
  while (values.size() < 256 * 40) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (value - value == 0) values.push_back(value);
  }
  for (size_t i = 0; i < values.size(); i += 256) {
    const std::span<const float> part(values.data() + i, 256);
    Checked(TensorAttribute::Get(context_, Tensor::Of<float>({256}, part)));
  }
}

TEST_F(AttributeTextTest, TensorErrors) {
  EXPECT_NE(AttributeError("tensor<[2], f32> [1.0]").find("has 2 elements, 1 are listed"),
            std::string::npos);
  EXPECT_NE(AttributeError("tensor<[?], f32> [1.0]").find("needs a known shape"),
            std::string::npos);
  EXPECT_NE(AttributeError("tensor<[-1], f32> []").find("negative"), std::string::npos);
  EXPECT_NE(AttributeError("tensor<[1], u8> [256]").find("256 does not fit u8"), std::string::npos);
  EXPECT_NE(AttributeError("tensor<[1], u8> [-1]").find("-1 does not fit u8"), std::string::npos);
  EXPECT_NE(AttributeError("tensor<[1], bool> hex \"02\"").find("hold no bool"), std::string::npos);
  EXPECT_NE(AttributeError("tensor<[1], i4> hex \"1f\"").find("hold no i4"), std::string::npos);
  EXPECT_NE(AttributeError("tensor<[1], f32> hex \"00\"").find("does not have 1 bytes"),
            std::string::npos);
  EXPECT_NE(AttributeError("tensor<[1], f32> hex \"0000803g\"").find("hexadecimal"),
            std::string::npos);
  AttributeError("tensor<[9223372036854775807, 9223372036854775807], f32> []");
  AttributeError("tensor<[9223372036854775807], i2> hex \"\"");
}

TEST_F(AttributeTextTest, ErrorsNameWhatWasExpected) {
  EXPECT_EQ(TypeError("v_tensr<[2], f32>"),
            "error[parse/unknown-type]: unknown type 'v_tensr'\n"
            "  --> <text>:1:1\n"
            "   |  1 | v_tensr<[2], f32>\n"
            "   |    | ^^^^^^^\n"
            "   = help: did you mean 'v_tensor'?\n");
  EXPECT_EQ(TypeError("tensor<[2] f32>"),
            "error[parse/syntax]: expected ',', found \"f32\"\n"
            "  --> <text>:1:12\n"
            "   |  1 | tensor<[2] f32>\n"
            "   |    |            ^\n");
  EXPECT_NE(TypeError("t.vex<2>").find("unknown type 't.vex'"), std::string::npos);
  EXPECT_NE(TypeError("tt.vec<2>").find("unknown dialect 'tt'"), std::string::npos);
  EXPECT_NE(TypeError("t.vec<-2>").find("= help: write its length"), std::string::npos);
  EXPECT_NE(TypeError("list<f32, f32>").find("<text>:1:1"), std::string::npos);
  EXPECT_NE(TypeError("tensor<[N +], f32>").find("<text>:1:9"), std::string::npos);
  EXPECT_NE(TypeError("f32 f32").find("expected the end of the text"), std::string::npos);
  EXPECT_NE(AttributeError("{a = 1, a = 2}").find("given twice"), std::string::npos);
  EXPECT_NE(AttributeError("99999999999999999999").find("does not fit 64 bits"), std::string::npos);
  EXPECT_NE(AttributeError("1e999").find("does not fit a double"), std::string::npos);
  EXPECT_NE(AttributeError("nan(0x7ff0000000000000)").find("64 bits of a NaN"), std::string::npos);
  EXPECT_NE(AttributeError("\"a\\q\"").find("malformed escape"), std::string::npos);
  EXPECT_NE(AttributeError("\"a\nb\"").find("does not end on its line"), std::string::npos);
  EXPECT_NE(AttributeError("").find("found the end of the text"), std::string::npos);
}

TEST_F(AttributeTextTest, NestingIsLimited) {
  auto nested = [](size_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += "f32";
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  Checked(ParseType(context_, nested(199, "list<", ">")));
  EXPECT_NE(TypeError(nested(200, "list<", ">")).find("nest deeper than 200"), std::string::npos);
  EXPECT_NE(TypeError(nested(1000000, "list<", ">")).find("nest deeper than"), std::string::npos);
  EXPECT_NE(AttributeError(nested(1000000, "[", "]")).find("nest deeper than"), std::string::npos);
  EXPECT_NE(AttributeError(nested(100000, "{a = ", "}")).find("nest deeper"), std::string::npos);
  AttributeError("loc(" + nested(100000, "fused[", "]") + ")");
  AttributeError("dim<" + nested(1000000, "(", ")"));
  AttributeError("dim<" + nested(1000000, "min(", ", 1)"));
  AttributeError("dim<" + nested(1000000, "-", ""));
}

}  // namespace
}  // namespace lathe::testing
