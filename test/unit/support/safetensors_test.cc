#include "lathe/support/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

std::shared_ptr<Buffer> BufferOf(const std::string& text) {
  auto buffer = Buffer::Allocate(text.size());
  if (!text.empty()) std::memcpy(buffer->mutable_data(), text.data(), text.size());
  return buffer;
}

SafeTensors Parse(const std::string& file) { return ParseSafeTensors(BufferOf(file), "a.st"); }

std::string File(const std::string& header, size_t data) {
  std::string out(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  return out + header + std::string(data, '\1');
}

TEST(SafeTensorsTest, ReadsTheFormat) {
  const SafeTensors content = Parse(File(
      R"({"__metadata__":{"b":"1","a":"2"},"y":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
      R"("x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}} )",
      6));
  ASSERT_EQ(content.tensors.size(), 2U);
  EXPECT_EQ(content.tensors[0].first, "x");
  EXPECT_EQ(content.tensors[1].second.TypeString(), "f32[1]");
  EXPECT_EQ(content.metadata[0], (std::pair<std::string, std::string>("a", "2")));
  ASSERT_NE(content.Find("y"), nullptr);
  EXPECT_EQ(content.Find("z"), nullptr);
}

TEST(SafeTensorsTest, EveryTypeRoundTrips) {
  SafeTensors content;
  for (const ElementType type : AllElementTypes()) {
    if (type == ElementType::kString) continue;
    content.tensors.emplace_back(std::string(Name(type)), RandomTensor(type, {3, 3}, 1));
    content.tensors.emplace_back(StrCat(Name(type), "/empty"), Tensor(type, {0, 2}));
  }
  content.metadata = {{"k", "v\n\"ü"}};
  const std::string file = SerializeSafeTensors(content);
  const SafeTensors back = Parse(file);
  EXPECT_EQ(back.metadata, content.metadata);
  ASSERT_EQ(back.tensors.size(), content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    ASSERT_NE(back.Find(name), nullptr) << name;
    EXPECT_EQ(*back.Find(name), tensor) << name;
  }
  EXPECT_EQ(file, SerializeSafeTensors(content));
}

TEST(SafeTensorsTest, MappedTensorsShareTheFile) {
  const TempFolder folder;
  const std::string path = folder / "t.safetensors";
  const Tensor t = RandomTensor(ElementType::kF32, {100}, 2);
  WriteSafeTensors(path, {.tensors = {{"t", t}}, .metadata = {}});
  const SafeTensors content = ReadSafeTensors(path);
  const Tensor& back = content.tensors[0].second;
  EXPECT_EQ(back, t);
  EXPECT_FALSE(back.buffer()->is_writable());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(back.raw()) % 64, 0U);
}

TEST(SafeTensorsTest, RefusesToWriteNonsense) {
  const Tensor t = Tensor::Scalar<float>(1);
  const auto write = [](SafeTensors content) { return SerializeSafeTensors(content); };
  EXPECT_THROW((void)write({.tensors = {{"a", t}, {"a", t}}, .metadata = {}}), Error);
  EXPECT_THROW((void)write({.tensors = {{"__metadata__", t}}, .metadata = {}}), Error);
  EXPECT_THROW((void)write({.tensors = {{"\xff", t}}, .metadata = {}}), Error);
  EXPECT_THROW((void)write({.tensors = {}, .metadata = {{"a", "1"}, {"a", "2"}}}), Error);
  EXPECT_THROW((void)write({.tensors = {{"s", Tensor::Scalar<std::string>("x")}}, .metadata = {}}),
               Error);
}

TEST(SafeTensorsTest, RefusesMalformedFiles) {
  struct Case {
    const char* header;
    size_t data;
    const char* says;
  };
  const Case cases[] = {
      {R"([])", 0, "not a JSON object"},
      {R"({"a")", 0, "not JSON"},
      {R"({"a":1})", 0, "three fields"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "strange number"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "strange number"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "ends at 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "end at 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "does not take"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})", 5, "starts at 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "starts at 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "occurs twice"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "2^63"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
       "does not take"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
       "above 2^63"},
      {R"({"__metadata__":{"a":1}})", 0, "but text"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "occurs twice"},
  };
  for (const Case& test : cases) {
    try {
      (void)Parse(File(test.header, test.data));
      ADD_FAILURE() << test.header;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "parse/safetensors") << test.header;
      EXPECT_NE(error.message().find(test.says), std::string::npos) << error.message();
    }
  }
  EXPECT_THROW((void)Parse(""), Error);
  EXPECT_THROW((void)Parse(std::string(8, '\xff')), Error);
  EXPECT_THROW((void)Parse(File(std::string(100000, '['), 0)), Error);
}

}  // namespace
}  // namespace lathe
