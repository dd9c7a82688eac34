#include <gtest/gtest.h>

#include <limits>

#include "lathe/dialect/scale_axis_interface.h"
#include "lathe/support/random.h"

namespace lathe {
namespace {

// Element by element in f64, rounded once.
Tensor Spelled(const Tensor& t, const Scale& scale, const ChannelLayout& layout) {
  Tensor result(ElementType::kF32, t.shape());
  for (size_t i = 0; i < static_cast<size_t>(t.num_elements()); ++i) {
    const size_t row = i / layout.run / layout.extent;
    const size_t channel = row / layout.per_group * layout.extent + i / layout.run % layout.extent;
    const double product = static_cast<double>(t.data<float>()[i]) * scale.at(channel);
    result.mutable_data<float>()[i] = static_cast<float>(product);
  }
  return result;
}

std::vector<double> Factors(size_t count) {
  std::vector<double> factors;
  for (size_t i = 0; i < count; ++i) factors.push_back(0.37 * static_cast<double>(i) - 1.3);
  return factors;
}

TEST(ScaleTest, EachElementByItsChannel) {
  for (const int64_t run : {1, 9, 63, 64, 100}) {
    const Tensor w = RandomTensor(ElementType::kF32, {12, 10, run}, 1);
    for (const int64_t axis : {0, 1, 2}) {
      const ChannelLayout layout = ChannelLayout::Along(w, axis);
      const Scale scale(Factors(layout.extent), axis);
      EXPECT_EQ(Scaled(w, scale, layout), Spelled(w, scale, layout)) << run << " " << axis;
    }
    ChannelLayout groups = ChannelLayout::Along(w, 1);
    groups.per_group = 4;
    const Scale scale(Factors(30), 1);
    EXPECT_EQ(Scaled(w, scale, groups), Spelled(w, scale, groups)) << run;
    const Scale one({-0.3}, 0);
    EXPECT_EQ(Scaled(w, one, groups), Spelled(w, one, groups)) << run;
  }
}

std::optional<Tensor> Times(std::vector<float> values, double factor) {
  const Tensor t = Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
  return Scaled(t, Scale({factor}, 0), {});
}

TEST(ScaleTest, NoResultWhereDigitsAreLost) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::min();
  std::vector<float> values(100, 1);
  values[70] = kMost;
  EXPECT_TRUE(Times(values, 1));
  EXPECT_FALSE(Times(values, 1.5));
  values[70] = 2 * kLeast;
  EXPECT_TRUE(Times(values, 1));
  EXPECT_TRUE(Times(values, 0.25));  // beside a one it does not matter
  EXPECT_FALSE(Times({2 * kLeast, kLeast}, 0.25));
  EXPECT_TRUE(Times({2 * kLeast, 0}, 1));
  EXPECT_TRUE(Times({0, 0}, 0.25));
  EXPECT_FALSE(Times({std::numeric_limits<float>::infinity()}, 1));
  EXPECT_FALSE(Times({std::numeric_limits<float>::quiet_NaN()}, 1));
}

}  // namespace
}  // namespace lathe
