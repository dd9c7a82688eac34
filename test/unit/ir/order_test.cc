#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/program.h"

/// Which of two operations of a block comes first, while operations come and go.
namespace lathe {
namespace {

class OrderTest : public ::testing::Test {
 protected:
  OrderTest() : program_((LoadAllDialects(context_), context_)) {}

  Operation* Insert(Operation* before) {
    Builder b(context_);
    if (before == nullptr) {
      b.SetInsertionPointToEnd(program_.block());
    } else {
      b.SetInsertionPoint(before);
    }
    const NamedAttribute name = b.Named("name", b.Attr(std::string_view("here")));
    return b.Create("builtin.empty", {}, {&name, 1});
  }

  std::vector<Operation*> Ops() const {
    std::vector<Operation*> ops;
    for (Operation& op : *program_.block()) ops.push_back(&op);
    return ops;
  }

  /// Neighbors suffice: the order is one of numbers.
  void ExpectOrdered() const {
    const std::vector<Operation*> ops = Ops();
    for (size_t i = 0; i + 1 < ops.size(); ++i) {
      ASSERT_TRUE(ops[i]->IsBefore(ops[i + 1])) << i << " of " << ops.size();
      ASSERT_FALSE(ops[i + 1]->IsBefore(ops[i])) << i << " of " << ops.size();
    }
  }

  IrContext context_;
  Program program_;
};

TEST_F(OrderTest, ManyInsertionsInOnePlace) {
  Operation* first = Insert(nullptr);
  Operation* last = Insert(nullptr);
  for (int i = 0; i < 2000; ++i) Insert(last);  // nobody asks in between
  EXPECT_TRUE(first->IsBefore(last));
  ExpectOrdered();
  for (int i = 0; i < 2000; ++i) {  // asked every time
    Operation* op = Insert(last);
    ASSERT_TRUE(op->IsBefore(last));
    ASSERT_TRUE(op->prev()->IsBefore(op));
    Operation* early = Insert(first->next());
    ASSERT_TRUE(early->IsBefore(op));
    ASSERT_TRUE(first->IsBefore(early));
  }
  ExpectOrdered();
}

TEST_F(OrderTest, TheFrontGivesWay) {
  Operation* op = Insert(nullptr);
  for (int i = 0; i < 500; ++i) {
    Operation* before = Insert(op);
    ASSERT_TRUE(before->IsBefore(op));
    op = before;
  }
  ExpectOrdered();
}

TEST_F(OrderTest, RandomInsertionsMovesAndErasures) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    std::vector<Operation*> ops = Ops();
    for (int i = 0; i < 300; ++i) {
      const auto pick = [&] { return ops.empty() ? nullptr : ops[rng() % ops.size()]; };
      const uint32_t what = rng() % 8;
      if (what < 5 || ops.size() < 3) {
        Insert(what == 0 ? nullptr : pick());
      } else if (what == 5) {
        Operation* op = pick();
        Operation* to = pick();
        if (op != to) op->MoveBefore(to);
      } else if (what == 6) {
        pick()->Erase();
      } else {
        Operation* a = pick();
        Operation* b = pick();
        const auto at = [&](Operation* op) { return std::find(ops.begin(), ops.end(), op); };
        ASSERT_EQ(a->IsBefore(b), at(a) < at(b));
      }
      ops = Ops();
    }
    ExpectOrdered();
  }
}

}  // namespace
}  // namespace lathe
