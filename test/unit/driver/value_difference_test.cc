#include "lathe/driver/value_difference.h"

#include <gtest/gtest.h>

#include <complex>
#include <limits>

#include "lathe/driver/value_statistics.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ValueDifference Compared(const RtValue& a, const RtValue& b, double rtol = 0, double atol = 0) {
  return CompareValues({{"x", a}}, {{"y", b}}, rtol, atol).at(0);
}

TEST(ValueDifferenceTest, FirstPlaceAndLargestErrors) {
  const Tensor a = Tensor::Of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::Of<double>({2, 3}, {1, 2, 3, 4.5, 5, 8});
  const ValueDifference d = Compared(a, b);
  EXPECT_EQ(d.elements, 6);
  EXPECT_EQ(d.beyond, 2);
  EXPECT_EQ(d.first_place, "[1,0]");
  EXPECT_EQ(d.first_a + " " + d.first_b, "4.0 4.5");
  EXPECT_EQ(d.max_abs, 2);
  EXPECT_EQ(d.max_rel, 0.25);
  EXPECT_EQ(Compared(a, b, 0.25, 0).beyond, 0);
  EXPECT_EQ(Compared(a, b, 0, 0.5).beyond, 1);
}

TEST(ValueDifferenceTest, NumbersThatAreNone) {
  const Tensor a = Tensor::Of<double>({4}, {kNaN, kInfinity, kInfinity, kNaN});
  const Tensor b = Tensor::Of<double>({4}, {kNaN, kInfinity, -kInfinity, 0});
  const ValueDifference d = Compared(a, b, 1, 1);
  EXPECT_EQ(d.beyond, 2);
  EXPECT_EQ(d.first_place, "[2]");
  EXPECT_EQ(d.max_abs, 0);
}

TEST(ValueDifferenceTest, OtherKinds) {
  EXPECT_EQ(Compared(Tensor::Scalar(1.0F), Tensor::Scalar(1.0)).mismatch, "f32[] and f64[]");
  EXPECT_EQ(Compared(Tensor::Of<float>({2}, {1, 2}), Tensor::Of<float>({1}, {1})).mismatch,
            "f32[2] and f32[1]");
  const RtValue one = RtValue::OfList({Tensor::Scalar(1.0F)});
  const RtValue two = RtValue::OfList({Tensor::Scalar(1.0F), Tensor::Scalar(2.0F)});
  EXPECT_EQ(Compared(one, two).mismatch, "lists of 1 and 2");
  EXPECT_EQ(Compared(one, Tensor::Scalar(1.0F)).mismatch, "list and tensor");
  EXPECT_EQ(
      Compared(two, RtValue::OfList({Tensor::Scalar(1.0F), Tensor::Scalar(3.0F)})).first_place,
      "1.[]");
  const Tensor text = Tensor::Of<std::string>({2}, {"a", "b"});
  EXPECT_EQ(Compared(text, Tensor::Of<std::string>({2}, {"a", "c"})).first_b, "\"c\"");
  using C = std::complex<float>;
  EXPECT_EQ(Compared(Tensor::Scalar(C(1, 2)), Tensor::Scalar(C(1, 3))).beyond, 1);
  EXPECT_TRUE(Compared(RtValue::AbsentOptional(), RtValue::AbsentOptional()).agrees());
}

TEST(ValueDifferenceTest, FilesHaveTheNamesOfTheirValues) {
  const Tensor t = Tensor::Scalar(1.0F);
  NamedValues files = {{"a_b-2", t}, {"a_b", t}, {"other", t}};
  RestoreNames(files, {{"a/b", t}, {"a_b", t}});
  EXPECT_EQ(files[0].first, "a/b");
  EXPECT_EQ(files[1].first, "a_b");
  EXPECT_EQ(files[2].first, "other");
}

TEST(ValueDifferenceTest, NamesDecideUnlessThereIsOneEach) {
  const Tensor t = Tensor::Scalar(1.0F);
  const auto all = CompareValues({{"x", t}, {"y", t}}, {{"y", t}, {"z", t}}, 0, 0);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].mismatch, "only the first has it");
  EXPECT_TRUE(all[1].agrees());
  EXPECT_EQ(all[2].mismatch, "only the second has it");
}

TEST(ValueStatisticsTest, NaNCountsForItself) {
  const auto s = StatisticsOf(Tensor::Of<double>({5}, {1, -3, kNaN, 5, kInfinity}));
  EXPECT_EQ(s->minimum, -3);
  EXPECT_EQ(s->maximum, kInfinity);
  EXPECT_EQ(s->nan, 1);
  EXPECT_EQ(s->infinite, 1);
  EXPECT_EQ(StatisticsOf(Tensor::Of<int32_t>({2}, {1, 2}))->mean, 1.5);
  EXPECT_TRUE(std::isnan(StatisticsOf(Tensor(ElementType::kF32, {0}))->mean));
  EXPECT_FALSE(StatisticsOf(Tensor::Scalar<std::string>("a")));
}

}  // namespace
}  // namespace lathe
