// Use lists, misuse, clones of regions, and what a program keeps from an older text.
#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

class UseLists : public ::testing::Test {
 protected:
  UseLists() {
    LoadAllDialects(context_);
    context_.allow_unregistered_ops(true);
  }
  Operation* Make(std::vector<Value> operands, size_t results, size_t regions = 0) {
    const std::vector<Type> types(results, TokenType::Get(context_));
    return Operation::Create({context_.GetOrMakeOp("my.op"), operands, types, {}, regions, {}});
  }
  template <class F>
  std::string IdOf(F&& fn) {
    try {
      fn();
    } catch (const Error& e) {
      return e.id();
    }
    return "no error";
  }
  IrContext context_;
};

// a = op1; b = op2; c = op3(a, b); d .. j = op4(a, c).
TEST_F(UseLists, NewestUseFirstAndReplaceable) {
  OwningOp op1(Make({}, 1)), op2(Make({}, 1));
  const Value a = op1->result(0), b = op2->result(0);
  OwningOp op3(Make({a, b}, 1));
  const Value c = op3->result(0);
  OwningOp op4(Make({a, c}, 7));
  std::vector<Operation*> users;
  for (const OpOperand use : a.uses()) users.push_back(use.owner());
  EXPECT_EQ(users, (std::vector<Operation*>{op4.get(), op3.get()}));
  EXPECT_EQ(op4->result(6).defining_op(), op4.get());
  EXPECT_EQ(op4->result(6).index(), 6u);

  for (UseRange::iterator at = a.uses().begin(); at != UseRange::iterator();) {
    const OpOperand use = *at++;
    if (use.owner() == op4.get()) use.Set(b);
  }
  EXPECT_EQ(op4->operand(0), b);
  EXPECT_EQ(op3->operand(0), a);
  a.ReplaceAllUsesWith(b);
  EXPECT_TRUE(a.use_empty());
  EXPECT_EQ(op3->operand(0), b);
  EXPECT_EQ(b.NumUses(), 3u);
}

TEST_F(UseLists, WhatIsUsedCanNotGo) {
  OwningOp def(Make({}, 7));
  {
    OwningOp user(Make({def->result(6)}, 0));
    EXPECT_EQ(IdOf([&] { def->Destroy(); }), "internal/check");
  }
  EXPECT_TRUE(def->use_empty());  // users first, then it may
}

TEST_F(UseLists, BlocksTakeTheirValuesAlong) {
  OwningOp holder(Make({}, 0, 1));
  Block* block = holder->region(0).AddBlock();
  const Value argument = block->AddArgument(TokenType::Get(context_));
  block->PushBack(Make({argument}, 1));
  block->PushBack(Make({block->front()->result(0), argument}, 0));
  EXPECT_NE(IdOf([&] { block->EraseArgument(0); }), "no error");
  holder->region(0).Clear();
  EXPECT_TRUE(holder->region(0).empty());
}

TEST_F(UseLists, APropertyNeedsAListPerResult) {
  OwningOp op(Make({}, 2));
  op->SetAttribute("persistable", StrAttribute::Get(context_, "yes"));
  const Attribute set = BoolAttribute::Get(context_, true);
  EXPECT_EQ(IdOf([&] { op->result(1).set_property("persistable", set); }), "ir/property");
  EXPECT_EQ(op->attribute("persistable"), Attribute(StrAttribute::Get(context_, "yes")));
}

// Operands within the clone are the clone's, those from outside the same, attributes copied.
TEST_F(UseLists, ClonesOfRegions) {
  OwningOp def(Make({}, 1));
  OwningOp outer(Make({def->result(0)}, 1, 1));
  Block* block = outer->region(0).AddBlock();
  const Value argument = block->AddArgument(TokenType::Get(context_));
  Operation* first = Make({argument, def->result(0)}, 1);
  first->SetAttribute("kind", StrAttribute::Get(context_, "first"));
  block->PushBack(first);
  Operation* nested = Make({}, 0, 1);
  nested->region(0).AddBlock()->PushBack(Make({first->result(0), argument}, 0));
  block->PushBack(nested);

  IrMapping mapping;
  OwningOp copy(Clone(outer.get(), mapping));
  Block* other = copy->region(0).front();
  ASSERT_NE(other, block);
  EXPECT_EQ(mapping.Lookup(argument), other->argument(0));
  EXPECT_EQ(mapping.Lookup(outer->result(0)), copy->result(0));
  EXPECT_EQ(other->front()->operand(0), other->argument(0));
  EXPECT_EQ(other->front()->operand(1), def->result(0));
  EXPECT_EQ(other->front()->attribute("kind"), first->attribute("kind"));
  const Operation* inner = other->back()->region(0).front()->front();
  EXPECT_EQ(inner->operand(0), other->front()->result(0));
  EXPECT_EQ(inner->operand(1), other->argument(0));
  EXPECT_EQ(first->operand(0), argument);  // the original is as it was
  EXPECT_EQ(block->front(), first);
  EXPECT_EQ(def->result(0).NumUses(), 4u);
}

TEST_F(UseLists, ModulesAreVerified) {
  const auto module = [&](size_t regions, size_t results) {
    const std::vector<Type> types(results, TokenType::Get(context_));
    return OwningOp(
        Operation::Create({context_.GetOrMakeOp("builtin.module"), {}, types, {}, regions, {}}));
  };
  EXPECT_FALSE(Verify(module(0, 0).get()).empty());
  OwningOp with_result = module(1, 1);
  with_result->region(0).AddBlock();
  EXPECT_FALSE(Verify(with_result.get()).empty());
  OwningOp right = module(1, 0);
  right->region(0).AddBlock();
  EXPECT_TRUE(Verify(right.get()).empty());
}

// ---- texts of older versions ----

constexpr const char* kConv = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 2, 4, 4], f32>
  %w = nn.feed() {name = "w"} : () -> v_tensor<[3, 2, 1, 1], f32>
  %y = nn.conv(%x, %w) ATTRIBUTES : (v_tensor<[1, 2, 4, 4], f32>, v_tensor<[3, 2, 1, 1], f32>) -> TYPE
})";

std::string Conv(const std::string& attributes, const std::string& type) {
  std::string text = kConv;
  text.replace(text.find("ATTRIBUTES"), 10, attributes);
  return text.replace(text.find("TYPE"), 4, type);
}

TEST_F(UseLists, OlderTextsGetDefaultsAndKeepWhatIsUnknown) {
  const std::string type = "v_tensor<[1, 3, 4, 4], f32>";
  // An attribute that came later has its default; one that is gone is carried and changes nothing.
  const Program today = ParseProgram(context_, Conv("{auto_pad = \"NOTSET\", group = 1}", type),
                                     {.file_locations = false});
  const Program before = ParseProgram(context_, Conv("", type), {.file_locations = false});
  EXPECT_TRUE(StructurallyEqual(before.module(), today.module()));
  const Program gone = ParseProgram(context_, Conv("{use_cudnn = true}", type));
  EXPECT_TRUE(Verify(gone).empty());
  EXPECT_NE(Print(gone).find("use_cudnn"), std::string::npos);
  EXPECT_EQ(Print(gone, {.file_locations = false, .runtime_attributes = false}).find("use_cudnn"),
            std::string::npos);
  // A result type that is not what the op gives today is an error that says so.
  const Program other = ParseProgram(context_, Conv("", "v_tensor<[1, 3, 4, 4], f64>"));
  EXPECT_FALSE(Verify(other).empty());
}

}  // namespace
}  // namespace lathe
