#include <gtest/gtest.h>

#include "lathe/pass/instrumentation.h"

namespace lathe {
namespace {

std::string Diff(const std::string& before, const std::string& after) {
  return DiffPrograms({before, before}, {after, after}, 0);
}

TEST(DiffPrograms, AnOpThatOnlyGotAnotherNumberIsUnchanged) {
  EXPECT_EQ(Diff("%0 = a()\n%1 = b(%0)\n%2 = c(%1)\n%3 = d(%2, %2)\n",
                 "%0 = a()\n%1 = c(%0)\n%2 = d(%1, %1)\n"),
            "  ...\n-%1 = b(%0)\n-%2 = c(%1)\n+%2 = c(%0)\n  ...\n");
}

TEST(DiffPrograms, NewValuesGetNewNumbers) {
  EXPECT_EQ(
      Diff("%0 = a()\n%1 = c(%0)\n%2 = d(%1)\n", "%0 = a()\n%1 = b(%0)\n%2 = c(%1)\n%3 = d(%2)\n"),
      "  ...\n-%1 = c(%0)\n+%3 = b(%0)\n+%1 = c(%3)\n  ...\n");
}

TEST(DiffPrograms, ArgumentsAndSeveralResultsAreNamed) {
  EXPECT_EQ(Diff("%0, %1 = split(%9)\n  ^(%2: t, %3: t):\n%4 = f(%3, %1)\n",
                 "%0 = new()\n%1, %2 = split(%9)\n  ^(%3: t, %4: t):\n%5 = f(%4, %2)\n"),
            "+%5 = new()\n  ...\n");
}

TEST(DiffPrograms, StringsHoldNoNames) {
  EXPECT_EQ(Diff("%0 = a() {s = \"%7 \\\" %8\"}\n", "%0 = a() {s = \"%9 \\\" %8\"}\n"),
            "-%0 = a() {s = \"%7 \\\" %8\"}\n+%1 = a() {s = \"%9 \\\" %8\"}\n");
}

TEST(DiffPrograms, WhatMovedIsTakenOutAndPutIn) {
  EXPECT_EQ(
      Diff("%0 = a()\n%1 = b()\n%2 = c()\n%3 = d()\n", "%0 = b()\n%1 = c()\n%2 = a()\n%3 = d()\n"),
      "-%0 = a()\n  ...\n+%4 = a()\n  ...\n");
}

TEST(DiffPrograms, LocationsTellEqualOpsApart) {
  const PrintedProgram before{"%0 = r(%9)\n%1 = r(%0)\n%2 = r(%1)\n",
                              "%0 = r(%9) loc(1)\n%1 = r(%0) loc(2)\n%2 = r(%1) loc(3)\n"};
  const PrintedProgram after{"%0 = r(%9)\n%1 = r(%0)\n", "%0 = r(%9) loc(1)\n%1 = r(%0) loc(3)\n"};
  EXPECT_EQ(DiffPrograms(before, after, 0), "  ...\n-%1 = r(%0)\n-%2 = r(%1)\n+%2 = r(%0)\n");
}

TEST(DiffLines, EqualTextsHaveNoDifference) {
  EXPECT_EQ(DiffLines("a\nb\n", "a\nb\n", 1), "  ...\n");
  EXPECT_EQ(DiffLines("a\nb\nc\n", "a\nx\nc\n", 1), " a\n-b\n+x\n c\n");
}

}  // namespace
}  // namespace lathe
