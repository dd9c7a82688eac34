#include "lathe/support/npy.h"

#include <gtest/gtest.h>

#include <complex>
#include <string>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Tensor Parse(const std::string& file) { return ParseNpy(Bytes(file), "test.npy"); }

// A version 1 file with this header and data.
std::string File(std::string header, const std::string& data) {
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  return out + header + data;
}

std::string Dict(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': " + descr + ", 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

std::string MessageOf(const std::string& file) {
  try {
    (void)Parse(file);
  } catch (const Error& error) {
    EXPECT_TRUE(error.id() == "parse/npy" || error.id() == "unsupported/npy" ||
                error.id() == "limit/size" || error.id() == "shape/negative-dim")
        << error.Render();
    return error.message();
  }
  return "";
}

TEST(NpyTest, ReadsWhatNumpyWrites) {
  const Tensor t = Parse(File(Dict("'<i2'", "(2, 2)"), std::string("\1\0\2\0\3\0\xff\xff", 8)));
  EXPECT_EQ(t, Tensor::Of<int16_t>({2, 2}, {1, 2, 3, -1}));
  EXPECT_EQ(Parse(File(Dict("'|b1'", "()"), "\x02")), Tensor::Scalar<bool>(true));
  EXPECT_EQ(Parse(File(Dict("'<f4'", "(0, 3)"), "")), Tensor(ElementType::kF32, {0, 3}));
  EXPECT_EQ(Parse(File(Dict("'<u1'", "(1L,)"), "a")), Tensor::Of<uint8_t>({1}, {'a'}));
}

TEST(NpyTest, ReadsBigEndian) {
  EXPECT_EQ(Parse(File(Dict("'>i4'", "(1,)"), std::string("\0\0\1\2", 4))),
            Tensor::Of<int32_t>({1}, {258}));
  const std::string parts("\x3f\x80\0\0\x40\0\0\0", 8);
  EXPECT_EQ(Parse(File(Dict("'>c8'", "(1,)"), parts)),
            Tensor::Of<std::complex<float>>({1}, {{1, 2}}));
}

TEST(NpyTest, TurnsFortranOrder) {
  const Tensor t = Parse(File(Dict("'|u1'", "(2, 3)", true), "adbecf"));
  EXPECT_EQ(t, Tensor::Of<uint8_t>({2, 3}, {'a', 'b', 'c', 'd', 'e', 'f'}));
}

TEST(NpyTest, ReadsStrings) {
  const std::string text("a\0\0\0\0\0\0\0\x1e\xd1\x01\0b\0\0\0", 16);
  EXPECT_EQ(Parse(File(Dict("'<U2'", "(2,)"), text)),
            Tensor::Of<std::string>({2}, {"a",
                                          "\xF0\x9D\x84\x9E"
                                          "b"}));
  EXPECT_EQ(Parse(File(Dict("'|S3'", "(1,)"), std::string("x\0\0", 3))),
            Tensor::Of<std::string>({1}, {"x"}));
}

TEST(NpyTest, EveryTypeRoundTrips) {
  for (const ElementType type : AllElementTypes()) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3, 5}, Shape{0, 4}}) {
      const Tensor t = RandomTensor(type, shape, 1);
      const Tensor back = Parse(SerializeNpy(t));
      const Tensor expected = type == ElementType::kIndex ? t.Reinterpreted(ElementType::kI64) : t;
      EXPECT_EQ(back, expected) << t.TypeString();
    }
  }
}

TEST(NpyTest, DataStartsAtAMultipleOf64) {
  for (int64_t n = 1; n < 1000000; n *= 10) {
    EXPECT_EQ((SerializeNpy(Tensor(ElementType::kU8, {n})).size() - static_cast<size_t>(n)) % 64,
              0U);
  }
}

TEST(NpyTest, StringsThatAreNotUtf8SurviveAsBytes) {
  const Tensor t = Tensor::Of<std::string>({2}, {"\xff\xfe", "abc"});
  EXPECT_EQ(Parse(SerializeNpy(t)), t);
}

TEST(NpyTest, RefusesMalformedFiles) {
  const std::string good = File(Dict("'<f4'", "(2,)"), std::string(8, '\0'));
  EXPECT_EQ(MessageOf(good), "");
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_NE(MessageOf(good.substr(0, cut)), "") << cut;
  }
  const std::string data(8, '\0');
  EXPECT_NE(MessageOf(good + "x"), "");
  for (const char* header :
       {"", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a','<f4'),('b','<f4')], 'fortran_order': False, 'shape': (1,)}"}) {
    EXPECT_NE(MessageOf(File(header, data)), "") << header;
  }
  for (const char* type : {"'|O'", "'<M8[ns]'", "'<f16'", "'<i3'", "'|V2'", "'f4'", "'<f'", "''",
                           "'<U99999999999999'", "[('f32', '<f4')]", "[('bf16', '<u4')]"}) {
    EXPECT_NE(MessageOf(File(Dict(type, "(2,)"), data)), "") << type;
  }
  EXPECT_NE(MessageOf(File(Dict("'|u1'", "(9223372036854775807,)"), data)), "");
  EXPECT_NE(MessageOf(File(Dict("'<U0'", "(1000000000,)"), "")), "");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_NE(MessageOf(File(Dict("'|u1'", many + ")"), "a")), "");
}

NamedTensors Sample() {
  return {{"x", Tensor::Of<float>({2}, {1, 2})},
          {"name with / and ü", Tensor::Of<std::string>({1}, {"s"})},
          {"zeros", Tensor(ElementType::kI64, {5000})}};
}

TEST(NpzTest, RoundTrips) {
  for (const bool compress : {false, true}) {
    const std::string file = SerializeNpz(Sample(), {.compress = compress});
    EXPECT_EQ(ParseNpz(Bytes(file), "a.npz"), Sample());
    EXPECT_EQ(file.size() > 40000, !compress);
    EXPECT_EQ(file, SerializeNpz(Sample(), {.compress = compress}));
  }
  EXPECT_TRUE(ParseNpz(Bytes(SerializeNpz({})), "a.npz").empty());
}

TEST(NpzTest, RefusesDamage) {
  for (const bool compress : {false, true}) {
    const NamedTensors small = {{"x", Tensor::Of<float>({2}, {1, 2})}};
    const std::string file = SerializeNpz(small, {.compress = compress});
    for (size_t cut = 0; cut < file.size(); ++cut) {
      EXPECT_THROW((void)ParseNpz(Bytes(file.substr(0, cut)), "a.npz"), Error) << cut;
    }
    int unnoticed = 0;
    for (size_t i = 0; i < file.size(); ++i) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
      try {
        // Only fields that do not matter (dates, versions, the name before the data) may differ.
        unnoticed += ParseNpz(Bytes(damaged), "a.npz") == small ? 0 : 1;
      } catch (const Error&) {
      }
    }
    EXPECT_LE(unnoticed, 1);  // the name in the directory
  }
}

TEST(NpzTest, RefusesDuplicateNames) {
  const Tensor t = Tensor::Scalar<float>(1);
  EXPECT_THROW((void)SerializeNpz({{"a", t}, {"a", t}}), Error);
  std::string file = SerializeNpz({{"a", t}, {"b", t}});
  for (char& c : file) c = c == 'b' ? 'a' : c;  // also in header texts, where it does no harm
  EXPECT_THROW((void)ParseNpz(Bytes(file), "a.npz"), Error);
}

TEST(NpyTest, FilesByPath) {
  const TempFolder folder;
  const Tensor t = RandomTensor(ElementType::kF32, {3, 4}, 5);
  WriteNpy(folder / "a.npy", t);
  EXPECT_EQ(ReadNpy(folder / "a.npy"), t);
  WriteNpz(folder / "a.npz", {{"t", t}});
  EXPECT_EQ(ReadNpz(folder / "a.npz"), (NamedTensors{{"t", t}}));
  EXPECT_THROW((void)ReadNpy(folder / "none.npy"), Error);
}

}  // namespace
}  // namespace lathe
