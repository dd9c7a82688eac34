#include "src/frontend/onnx/wire.h"

#include <gtest/gtest.h>

#include <limits>

#include "model_util.h"

namespace lathe::onnx {
namespace {

WireReader Reader(const std::string& bytes) { return WireReader(bytes, "m.onnx", "model"); }

TEST(Wire, ReadsWhatIsWritten) {
  WireWriter w;
  w.Varint(1, 0);
  w.Int(2, -1);
  w.Float(3, 1.5F);
  w.Bytes(16, "abc");
  w.Varint(100000, std::numeric_limits<uint64_t>::max());
  WireReader r = Reader(w.out());
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.Varint(), 0U);
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.Int64(), -1);
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.Float(), 1.5F);
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.field(), 16U);
  EXPECT_EQ(r.Bytes(), "abc");
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.field(), 100000U);
  EXPECT_EQ(r.Varint(), std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(r.Next());
}

TEST(Wire, BytesAreViews) {
  WireWriter w;
  w.Bytes(1, "weights");
  const std::string bytes = w.Take();
  WireReader r = Reader(bytes);
  ASSERT_TRUE(r.Next());
  EXPECT_EQ(r.Bytes().data(), bytes.data() + 2);
}

TEST(Wire, PackedAndSingleElementsDecodeAlike) {
  WireWriter packed;
  packed.RawVarint(300);
  packed.RawVarint(7);
  WireWriter w;
  w.Bytes(1, packed.out());
  w.Varint(1, 300);
  WireReader r = Reader(w.out());
  ASSERT_TRUE(r.Next());
  std::string_view run = r.Encoded();
  uint64_t value = 0;
  ASSERT_TRUE(NextVarint(run, value));
  EXPECT_EQ(value, 300U);
  ASSERT_TRUE(NextVarint(run, value));
  EXPECT_EQ(value, 7U);
  EXPECT_TRUE(run.empty());
  ASSERT_TRUE(r.Next());
  run = r.Encoded();
  ASSERT_TRUE(NextVarint(run, value));
  EXPECT_EQ(value, 300U);
}

struct Broken {
  const char* name;
  std::string bytes;
  const char* message;
};

TEST(Wire, SaysWhatIsBroken) {
  const Broken cases[] = {
      {"field 0", std::string("\x00", 1), "field number 0"},
      {"group", "\x0b", "wire type 3"},
      {"length beyond the end", "\x0a\x05zz", "needs 5 bytes"},
      {"length of 2^63", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "has 0 left"},
      {"endless number", "\x08" + std::string(11, '\xff'), "longer than 10 bytes"},
      {"cut-off number", "\x08\x80", "ends within a number"},
      {"cut-off float", "\x0d\x01\x02", "needs 4 bytes"},
  };
  for (const Broken& c : cases) {
    const Error error = Caught([&] {
      WireReader r = Reader(c.bytes);
      while (r.Next()) r.Skip();
    });
    EXPECT_EQ(error.id(), "onnx/wire") << c.name;
    EXPECT_NE(error.message().find(c.message), std::string::npos) << c.name << error.message();
  }
}

TEST(Wire, ErrorsNameOffsetAndPath) {
  ModelMsg model = Model(13, {}, {Node("Relu", {"x"}, {"y"}), Node("Abs", {"y"}, {"z"})}, {"z"});
  std::string bytes = Serialize(model);
  // The last byte of the second node's operator becomes a length that is too large.
  const size_t at = bytes.find("Abs") - 1;
  bytes[at] = 0x7f;
  const Error error = Caught([&] { ParseModel(bytes, "m.onnx"); });
  EXPECT_EQ(error.where(), StrCat("m.onnx, byte ", at + 1, ", graph.node[1]"));
}

TEST(Wire, DeepNestingIsAnError) {
  std::string bytes;
  // graph.node.attribute.g. and so on: fields 1, 5, 6.
  const uint32_t fields[] = {6, 5, 1};
  for (int i = 0; i < 3000; ++i) {
    WireWriter w;
    w.Bytes(fields[i % 3], bytes);
    bytes = w.Take();
  }
  WireWriter model;
  model.Bytes(7, bytes);
  EXPECT_EQ(Caught([&] { ParseModel(model.out(), "m"); }).id(), "onnx/nesting");
}

TEST(Messages, EveryPrefixOfAModelEitherParsesOrFailsCleanly) {
  ModelMsg model = Model(13, {Info("x", ElementType::kF32, {2})},
                         {Node("LeakyRelu", {"x"}, {"y"}, {Float("alpha", 0.5F)}),
                          Node("Concat", {"y", "y"}, {"z"}, {Int("axis", 0)})},
                         {"z"});
  const std::string bytes = Serialize(model);
  size_t failures = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Error error = Caught([&] { ParseModel(bytes.substr(0, n), "m"); });
    EXPECT_TRUE(error.id() == "none" || error.id() == "onnx/wire") << error.id();
    failures += error.id() == "none" ? 0 : 1;
  }
  EXPECT_GT(failures, bytes.size() / 2);
}

TEST(Messages, SerializeAndParseAreInverse) {
  ModelMsg model = Model(13, {Info("x", ElementType::kF32, {2})},
                         {Node("Foo", {"x", "", "w"}, {"y"},
                               {Float("f", 0.5F), Int("i", -3), Str("s", "text"),
                                Ints("is", {1, -2}), Floats("fs", {0.25})},
                               "com.acme")},
                         {"y"});
  const Tensor w = F32({2}, {1, 2});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  FunctionMsg f;
  f.name = "Foo";
  f.domain = "com.acme";
  f.inputs = {"a"};
  f.outputs = {"b"};
  f.attributes = {"alpha"};
  f.opsets = {{Text(), 13}};
  f.nodes = {Node("LeakyRelu", {"a"}, {"b"}, {Reference("alpha", "alpha", AttrType::kFloat)})};
  model.functions.push_back(f);
  const std::string bytes = Serialize(model);
  const ModelMsg back = ParseModel(bytes, "m");
  EXPECT_EQ(Serialize(back), bytes);
  ASSERT_EQ(back.graph.nodes.size(), 1U);
  const NodeMsg& node = back.graph.nodes[0];
  EXPECT_EQ(node.inputs, (std::vector<Text>{"x", "", "w"}));
  EXPECT_EQ(node.Find("i")->i, -3);
  EXPECT_EQ(node.Find("is")->ints, (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(node.Find("fs")->floats, std::vector<double>{0.25});
  EXPECT_EQ(node.Find("none"), nullptr);
  EXPECT_EQ(back.functions[0].nodes[0].attributes[0].ref_attr_name, "alpha");
}

TEST(Messages, AnAttributeOfAnotherKindThanItsTypeIsRefused) {
  AttributeMsg a = Int("alpha", 1);
  ModelMsg model = Model(13, {}, {Node("LeakyRelu", {"x"}, {"y"}, {a})}, {"y"});
  std::string bytes = Serialize(model);
  // `type` is written as 0xa0 0x01 and the number of the kind.
  const size_t type = bytes.find("\xa0\x01\x02");
  ASSERT_NE(type, std::string::npos);
  bytes[type + 2] = 1;
  EXPECT_EQ(Caught([&] { ParseModel(bytes, "m"); }).id(), "onnx/attribute");
  bytes[type + 2] = 99;
  EXPECT_EQ(Caught([&] { ParseModel(bytes, "m"); }).id(), "onnx/attribute");
}

}  // namespace
}  // namespace lathe::onnx
