#include "lathe/support/version.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lathe {
namespace {

TEST(Version, HasThreeParts) { EXPECT_EQ(std::ranges::count(Version(), '.'), 2); }

}  // namespace
}  // namespace lathe
