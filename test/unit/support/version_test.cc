#include "lathe/support/version.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lathe/version.h"

namespace lathe {
namespace {

TEST(Version, HasThreeParts) { EXPECT_EQ(std::ranges::count(Version(), '.'), 2); }

TEST(Version, IsThatOfTheHeaders) { EXPECT_EQ(Version(), LATHE_VERSION_STRING); }

}  // namespace
}  // namespace lathe
