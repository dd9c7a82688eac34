#include "lathe/support/element_type.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/tensor.h"

namespace lathe {
namespace {

TEST(ElementTypeTest, NamesAreUniqueAndParse) {
  std::set<std::string_view> names;
  for (const ElementType type : AllElementTypes()) {
    EXPECT_TRUE(names.insert(Name(type)).second) << Name(type);
    EXPECT_EQ(ParseElementType(Name(type)), type);
  }
  EXPECT_EQ(names.size(), 27U);
  EXPECT_EQ(ParseElementType("undefined"), std::nullopt);
  EXPECT_EQ(ParseElementType("F32"), std::nullopt);
  EXPECT_EQ(Name(static_cast<ElementType>(200)), "undefined");
}

TEST(ElementTypeTest, OnnxNumbers) {
  EXPECT_EQ(ElementTypeFromOnnx(1), ElementType::kF32);
  EXPECT_EQ(ElementTypeFromOnnx(26), ElementType::kI2);
  for (const int bad : {0, -1, 27, 31, 300, 1 << 30})
    EXPECT_EQ(ElementTypeFromOnnx(bad), std::nullopt);
}

TEST(ElementTypeTest, Sizes) {
  EXPECT_EQ(StorageBytes(ElementType::kI4, 3), 2U);
  EXPECT_EQ(StorageBytes(ElementType::kI2, 5), 2U);
  EXPECT_EQ(StorageBytes(ElementType::kI2, 4), 1U);
  EXPECT_EQ(StorageBytes(ElementType::kC128, 3), 48U);
  EXPECT_EQ(StorageBytes(ElementType::kI4, ~size_t{0} >> 1), (~size_t{0} >> 2) + 1);
  EXPECT_EQ(AlignmentOf(ElementType::kC128), 8U);
  EXPECT_EQ(AlignmentOf(ElementType::kI4), 1U);
}

TEST(ElementTypeTest, ClassesArePartition) {
  for (const ElementType type : AllElementTypes()) {
    const int classes = int{IsFloat(type)} + int{IsInteger(type)} + int{IsComplex(type)} +
                        int{type == ElementType::kBool} + int{type == ElementType::kString};
    EXPECT_EQ(classes, 1) << Name(type);
  }
  EXPECT_FALSE(IsSigned(ElementType::kF8E8M0));
  EXPECT_TRUE(IsSigned(ElementType::kIndex));
  EXPECT_TRUE(IsSubByte(ElementType::kF4E2M1));
  EXPECT_FALSE(IsSubByte(ElementType::kString));
}

TEST(DispatchTest, VisitsTheStorageType) {
  for (const ElementType type : AllElementTypes()) {
    const ElementType visited =
        VisitElementType(type, []<class T>(std::type_identity<T>) { return ElementTypeOf<T>; });
    EXPECT_EQ(visited, type == ElementType::kIndex ? ElementType::kI64 : type) << Name(type);
  }
}

TEST(DispatchTest, NarrowVisitorsRefuse) {
  const auto size = []<class T>(std::type_identity<T>) { return sizeof(T); };
  EXPECT_EQ(VisitNumeric(ElementType::kF16, size), 2U);
  EXPECT_EQ(VisitInteger(ElementType::kU64, size), 8U);
  EXPECT_THROW(VisitFloat(ElementType::kI32, size), Error);
  EXPECT_THROW(VisitInteger(ElementType::kBool, size), Error);
  EXPECT_THROW(VisitNumeric(ElementType::kF8E5M2, size), Error);
  EXPECT_THROW(VisitElementType(ElementType::kUndefined, size), Error);
}

}  // namespace
}  // namespace lathe
