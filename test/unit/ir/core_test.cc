#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/dialect.h"
#include "lathe/ir/op.h"
#include "lathe/ir/program.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

struct CountInterface : OpInterface<CountInterface> {
  struct Concept {
    int (*count)(Operation*);
  };
  template <class OpT>
  struct Model : Concept {
    Model() : Concept{&OpT::Count} {}
  };
  using OpInterface::OpInterface;
  int Count() const { return table()->count(op_); }
};

struct NeverInterface : OpInterface<NeverInterface> {
  struct Concept {
    int (*never)();
  };
  using OpInterface::OpInterface;
};

class PlainOp : public Op<PlainOp> {
 public:
  using Op::Op;
  static constexpr const char* kName = "test.plain";
  static const OpDef* Def() { return nullptr; }
};

class CountedOp : public Op<CountedOp, HasValueSemantics, CountInterface, Commutative> {
 public:
  using Op::Op;
  static constexpr const char* kName = "test.counted";
  static const OpDef* Def() { return nullptr; }
  static int Count(Operation* op) { return static_cast<int>(op->num_operands()); }
};

class TestDialect : public Dialect {
 public:
  static constexpr const char* kName = "test";
  explicit TestDialect(IrContext& c) : Dialect(c, kName) { RegisterOps<PlainOp, CountedOp>(); }
};

class IrCore : public ::testing::Test {
 protected:
  IrCore() {
    context.LoadDialect<TestDialect>();
    context.allow_unregistered_ops(true);
  }
  Operation* Make(std::vector<Value> operands, size_t results, size_t regions = 0,
                  const char* name = "test.plain") {
    const std::vector<Type> types(results, TokenType::Get(context));
    return Operation::Create({context.GetOrMakeOp(name), operands, types, {}, regions, {}});
  }
  IrContext context;
};

// ---- types and attributes ----

TEST_F(IrCore, EqualTypesAreOnePointer) {
  const SymShape shape{Dim::Symbol("N"), 3};
  const Type a = VTensorType::Get(context, shape, ElementType::kF32);
  EXPECT_EQ(a, VTensorType::Get(context, {Dim::Symbol("N"), 3}, ElementType::kF32));
  EXPECT_NE(a, TensorType::Get(context, shape, ElementType::kF32));
  EXPECT_NE(a, VTensorType::Get(context, {Dim::Symbol("M"), 3}, ElementType::kF32));
  EXPECT_NE(a, VTensorType::Get(context, shape, ElementType::kF64));
  EXPECT_EQ(sizeof(a), sizeof(void*));
}

TEST_F(IrCore, ScalarEmptyUnknownDimAndUnknownRankDiffer) {
  const auto get = [&](const SymShape& s) {
    return VTensorType::Get(context, s, ElementType::kF32);
  };
  const std::vector<Type> types{get(SymShape({})), get(SymShape({0})), get(SymShape({Dim()})),
                                get(SymShape::Unranked())};
  for (size_t i = 0; i < types.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(types[i], types[j]) << i << " " << j;
  }
}

TEST_F(IrCore, ContainersNest) {
  const Type f = ElemType::Get(context, ElementType::kF32);
  const Type list = ListType::Get(context, std::vector<Type>{f});
  const Type both = TupleType::Get(context, std::vector<Type>{list, f});
  EXPECT_EQ(both.cast<TupleType>().elements()[0], list);
  EXPECT_TRUE(both.isa<ContainerType>());
  EXPECT_FALSE(f.isa<ContainerType>());
  EXPECT_THROW((void)ListType::Get(context, std::vector<Type>{f, f}), Error);
}

TEST_F(IrCore, CompatibleTypesDoNotContradict) {
  const auto t = [&](const SymShape& s, ElementType e = ElementType::kF32) -> Type {
    return VTensorType::Get(context, s, e);
  };
  EXPECT_TRUE(Compatible(t({2, 3}), t({Dim(), 3})));
  EXPECT_TRUE(Compatible(t(SymShape::Unranked()), t({1})));
  EXPECT_FALSE(Compatible(t({2}), t({3})));
  EXPECT_FALSE(Compatible(t({2}), t({2, 1})));
  EXPECT_FALSE(Compatible(t({2}), t({2}, ElementType::kI64)));
  EXPECT_FALSE(Compatible(t({2}), t({2}).cast<AnyTensorType>().AsMutable()));
  const auto list = [&](Type e) -> Type { return ListType::Get(context, std::vector<Type>{e}); };
  EXPECT_TRUE(Compatible(list(t({Dim()})), list(t({7}))));
  EXPECT_FALSE(Compatible(list(t({6})), list(t({7}))));
}

TEST_F(IrCore, FloatsAreUniqueByBits) {
  const auto get = [&](double v) { return FloatAttribute::Get(context, v); };
  EXPECT_NE(get(0.0), get(-0.0));
  EXPECT_EQ(get(std::nan("")), get(std::nan("")));
  const auto payload = std::bit_cast<double>(std::bit_cast<uint64_t>(std::nan("")) + 1);
  EXPECT_NE(get(std::nan("")), get(payload));
  EXPECT_EQ(std::bit_cast<uint64_t>(get(payload).value()), std::bit_cast<uint64_t>(payload));
}

TEST_F(IrCore, DictionariesSortAndRefuseRepeats) {
  const auto entry = [&](const char* name, int64_t v) {
    return NamedAttribute{StrAttribute::Get(context, name), IntAttribute::Get(context, v)};
  };
  const auto a = DictionaryAttribute::Get(context, std::vector{entry("b", 2), entry("a", 1)});
  EXPECT_EQ(a, DictionaryAttribute::Get(context, std::vector{entry("a", 1), entry("b", 2)}));
  EXPECT_EQ(a.entries()[0].name.value(), "a");
  EXPECT_EQ(a.Find("b"), IntAttribute::Get(context, 2));
  EXPECT_FALSE(a.Find("c"));
  EXPECT_EQ(a.With("a", Attribute()).size(), 1u);
  EXPECT_EQ(a.With("c", IntAttribute::Get(context, 3)).size(), 3u);
  EXPECT_THROW((void)DictionaryAttribute::Get(context, std::vector{entry("a", 1), entry("a", 2)}),
               Error);
}

TEST_F(IrCore, TensorAttributesAreUniqueByContents) {
  const auto get = [&](Tensor t) { return TensorAttribute::Get(context, t); };
  EXPECT_EQ(get(Tensor::Of<int64_t>({2}, {1, 2})), get(Tensor::Of<int64_t>({2}, {1, 2})));
  EXPECT_NE(get(Tensor::Of<int64_t>({2}, {1, 2})), get(Tensor::Of<int64_t>({2, 1}, {1, 2})));
  EXPECT_NE(get(Tensor::Of<int64_t>({1}, {1})), get(Tensor::Of<uint64_t>({1}, {1})));
  EXPECT_EQ(get(Tensor::Of<std::string>({1}, {"x"})), get(Tensor::Of<std::string>({1}, {"x"})));
}

TEST_F(IrCore, LocationsPackAndFuse) {
  const Location f = Location::FileLineCol(context, "m.lathe", 70000, 12);
  EXPECT_EQ(f.line(), 70000u);
  EXPECT_EQ(f.column(), 12u);
  EXPECT_EQ(f.file(context), "m.lathe");
  const Location n = Location::Name(context, "conv1");
  EXPECT_EQ(n, Location::Name(context, "conv1"));
  const Location both = Location::Fused(context, std::vector{n, f, n, Location()});
  ASSERT_TRUE(both.is_fused());
  EXPECT_EQ(both.parts().size(), 2u);
  EXPECT_EQ(Location::Fused(context, std::vector{both, n}), both);
  EXPECT_EQ(Location::Fused(context, std::vector{n, n}), n);
  EXPECT_TRUE(Location::Fused(context, {}).is_unknown());
  EXPECT_EQ(both.ToString(context), "fused('conv1', m.lathe:70000:12)");
}

// ---- operations and values ----

TEST_F(IrCore, ResultsFindTheirOwnerByAddress) {
  OwningOp op(Make({}, 9));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(op->result(i).defining_op(), op.get());
    EXPECT_EQ(op->result(i).index(), i);
    EXPECT_EQ(op->result(i).impl()->kind(), std::min<size_t>(i, 6));
    EXPECT_FALSE(op->result(i).is_block_argument());
  }
  EXPECT_LT(static_cast<const void*>(op->result(8).impl()),
            static_cast<const void*>(op->result(7).impl()));
  EXPECT_LT(static_cast<const void*>(op->result(1).impl()),
            static_cast<const void*>(op->result(0).impl()));
}

TEST_F(IrCore, UseListsFollowOperands) {
  OwningOp def(Make({}, 7));
  const Value a = def->result(0), b = def->result(6);
  OwningOp user(Make({a, b, a}, 0));
  EXPECT_EQ(a.NumUses(), 2u);
  EXPECT_TRUE(b.has_one_use());
  EXPECT_EQ((*b.uses().begin()).index(), 1u);
  EXPECT_EQ((*b.uses().begin()).owner(), user.get());
  user->set_operand(0, b);
  EXPECT_EQ(a.NumUses(), 1u);
  EXPECT_EQ(b.NumUses(), 2u);
  EXPECT_EQ(b.index(), 6u);
  a.ReplaceAllUsesWith(b);
  EXPECT_TRUE(a.use_empty());
  EXPECT_EQ(b.NumUses(), 3u);
  EXPECT_EQ(a.index(), 0u);
  user->set_operand(1, Value());
  EXPECT_FALSE(user->operand(1));
}

TEST_F(IrCore, UnlinkingFromTheMiddleKeepsTheKind) {
  OwningOp def(Make({}, 4));
  const Value v = def->result(3);
  OwningOp x(Make({v}, 0)), y(Make({v}, 0)), z(Make({v}, 0));
  y->set_operand(0, Value());
  EXPECT_EQ(v.NumUses(), 2u);
  z->set_operand(0, Value());
  x->set_operand(0, Value());
  EXPECT_TRUE(v.use_empty());
  EXPECT_EQ(v.index(), 3u);
  EXPECT_EQ(v.defining_op(), def.get());
}

TEST_F(IrCore, DestroyingAUsedResultIsAnError) {
  OwningOp def(Make({}, 1));
  OwningOp user(Make({def->result(0)}, 0));
  EXPECT_THROW(def->Destroy(), Error);
}

TEST_F(IrCore, PropertiesLiveOnTheOperation) {
  OwningOp op(Make({}, 3));
  EXPECT_FALSE(op->result(1).property("stop_gradient"));
  op->result(1).set_property("stop_gradient", BoolAttribute::Get(context, true));
  EXPECT_EQ(op->result(1).property("stop_gradient"), BoolAttribute::Get(context, true));
  EXPECT_EQ(op->result(0).property("stop_gradient"), BoolAttribute::Get(context, false));
  EXPECT_EQ(op->attribute("stop_gradient").cast<ArrayAttribute>().values().size(), 3u);
  op->result(2).set_property("stop_gradient", BoolAttribute::Get(context, true));
  op->result(1).set_property("stop_gradient", Attribute());
  EXPECT_EQ(op->result(1).property("stop_gradient"), BoolAttribute::Get(context, false));
  op->result(2).set_property("stop_gradient", Attribute());
  EXPECT_FALSE(op->attribute("stop_gradient"));
}

TEST_F(IrCore, TraitsAndInterfacesComeFromTheOpType) {
  OwningOp counted(Make({Value(), Value()}, 0, 0, "test.counted"));
  OwningOp plain(Make({}, 0));
  EXPECT_TRUE(counted->HasTrait<Commutative>());
  EXPECT_TRUE(counted->HasTrait<HasValueSemantics>());
  EXPECT_FALSE(counted->HasTrait<Terminator>());
  EXPECT_FALSE(plain->HasTrait<Commutative>());
  EXPECT_EQ(counted->dyn_cast<CountInterface>().Count(), 2);
  EXPECT_FALSE(plain->dyn_cast<CountInterface>());
  EXPECT_FALSE(counted->HasInterface<NeverInterface>());
  EXPECT_TRUE(counted->isa<CountedOp>());
  EXPECT_FALSE(plain->dyn_cast<CountedOp>());
  EXPECT_THROW((void)plain->cast<CountedOp>(), Error);
}

TEST_F(IrCore, InterfacesCanBeAttachedLater) {
  struct Model : CountInterface::Concept {
    Model() : Concept{[](Operation*) { return 42; }} {}
  };
  context.GetOp<PlainOp>().AttachInterface<CountInterface, Model>();
  OwningOp plain(Make({}, 0));
  EXPECT_EQ(plain->dyn_cast<CountInterface>().Count(), 42);
  EXPECT_THROW((context.GetOp<PlainOp>().AttachInterface<CountInterface, Model>()), Error);
}

TEST_F(IrCore, TypesCanHaveInterfaces) {
  struct Size {
    struct Concept {
      int (*size)(Type);
    };
  };
  struct Model : Size::Concept {
    Model() : Concept{[](Type) { return 7; }} {}
  };
  context.AttachInterface<TokenType, Size, Model>();
  const Type token = TokenType::Get(context);
  ASSERT_NE(token.interface<Size>(), nullptr);
  EXPECT_EQ(token.interface<Size>()->size(token), 7);
  EXPECT_EQ(Type(NoneType::Get(context)).interface<Size>(), nullptr);
}

TEST_F(IrCore, UnknownOpsSuggestNames) {
  context.allow_unregistered_ops(false);
  try {
    (void)context.GetOrMakeOp("test.plian");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.id(), "ir/unknown-op");
    EXPECT_NE(e.Render().find("test.plain"), std::string::npos);
  }
}

TEST_F(IrCore, AnOpRegisteredTwiceIsAnError) {
  Dialect& d = *context.FindDialect("test");
  EXPECT_THROW(context.RegisterOp<PlainOp>(d), Error);
}

// ---- blocks, regions, programs ----

TEST_F(IrCore, OrderSurvivesInsertions) {
  Program p(context);
  Operation* first = Make({}, 0);
  Operation* last = Make({}, 0);
  p.block()->PushBack(first);
  p.block()->PushBack(last);
  Operation* at = last;
  for (int i = 0; i < 100; ++i) {  // more than the gap between two numbers holds
    Operation* op = Make({}, 0);
    p.block()->InsertBefore(at, op);
    EXPECT_TRUE(first->IsBefore(op));
    EXPECT_TRUE(op->IsBefore(at));
    at = op;
  }
  first->MoveToEnd(p.block());
  EXPECT_TRUE(last->IsBefore(first));
}

TEST_F(IrCore, BlockArgumentsRenumberWhenOneGoes) {
  OwningOp op(Make({}, 0, 1));
  Block* b = op->region(0).AddBlock();
  for (int i = 0; i < 3; ++i) b->AddArgument(TokenType::Get(context));
  const Value last = b->argument(2);
  b->EraseArgument(0);
  EXPECT_EQ(last.index(), 1u);
  EXPECT_TRUE(last.is_block_argument());
  EXPECT_EQ(last.argument_block(), b);
  EXPECT_EQ(last.parent_block(), b);
  EXPECT_EQ(b->parent_op(), op.get());
}

TEST_F(IrCore, WalkAndCloneKeepOrderAndStructure) {
  Program p(context);
  Operation* def = Make({}, 1);
  p.block()->PushBack(def);
  Operation* outer = Make({def->result(0)}, 0, 2);
  p.block()->PushBack(outer);
  Block* inner = outer->region(0).AddBlock();
  const Value arg = inner->AddArgument(TokenType::Get(context));
  inner->PushBack(Make({arg, def->result(0)}, 0));
  outer->region(1).AddBlock()->PushBack(Make({}, 8));
  p.block()->PushBack(Make({}, 0));

  std::vector<Operation*> pre, post;
  for (OpWalker w(p.module()); Operation* op = w.Next();) pre.push_back(op);
  WalkPostOrder(p.module(), [&](Operation* op) { post.push_back(op); });
  ASSERT_EQ(pre.size(), 6u);
  EXPECT_EQ(pre[0], p.module());
  EXPECT_EQ(pre[2], outer);
  EXPECT_EQ(pre[3], inner->front());
  ASSERT_EQ(post.size(), 6u);
  EXPECT_EQ(post.back(), p.module());
  EXPECT_EQ(post[1], inner->front());

  const Program copy = p.Clone();
  std::string why;
  EXPECT_TRUE(StructurallyEqual(p.module(), copy.module(), true, &why)) << why;
  copy.block()->back()->SetAttribute("x", IntAttribute::Get(context, 1));
  EXPECT_FALSE(StructurallyEqual(p.module(), copy.module(), true, &why));
  EXPECT_NE(why.find("attributes"), std::string::npos);
}

TEST_F(IrCore, SkippedRegionsAreNotWalked) {
  OwningOp op(Make({}, 0, 1));
  op->region(0).AddBlock()->PushBack(Make({}, 0));
  OpWalker w(op.get());
  EXPECT_EQ(w.Next(), op.get());
  w.SkipRegions();
  EXPECT_EQ(w.Next(), nullptr);
}

TEST_F(IrCore, DeepNestingAndLongChainsDoNotOverflowTheStack) {
  Program p(context);
  Block* at = p.block();
  for (int i = 0; i < 100'000; ++i) {
    Operation* op = Make({}, 0, 1);
    at->PushBack(op);
    at = op->region(0).AddBlock();
  }
  Value previous;
  for (int i = 0; i < 1'000'000; ++i) {
    Operation* op = Make({previous}, 1);
    p.block()->PushBack(op);
    previous = op->result(0);
  }
  const Program copy = p.Clone();
  EXPECT_TRUE(StructurallyEqual(p.module(), copy.module()));
  size_t count = 0;
  WalkPostOrder(p.module(), [&](Operation*) { ++count; });
  EXPECT_EQ(count, 1'100'001u);
}

TEST_F(IrCore, ParametersKeepInsertionOrderAndRefuseRepeats) {
  Program p(context);
  const auto name = [&](const char* n) { return StrAttribute::Get(context, n); };
  p.parameters().Insert(name("z"), {Tensor::Scalar<float>(1), false});
  p.parameters().Insert(name("a"), {Tensor::Scalar<float>(2), false});
  EXPECT_THROW(p.parameters().Insert(name("z"), {}), Error);
  EXPECT_EQ(p.parameters().begin()->name.value(), "z");
  EXPECT_EQ(p.parameters().FreshName(context, "a").value(), "a.1");
  EXPECT_EQ(p.parameters().Find("a")->data, Tensor::Scalar<float>(2));
  EXPECT_EQ(p.parameters().Find("none"), nullptr);
  EXPECT_TRUE(p.parameters().Erase(name("z")));
  EXPECT_EQ(p.parameters().Find("a")->data, Tensor::Scalar<float>(2));
  EXPECT_FALSE(p.parameters().Erase(name("z")));
}

TEST_F(IrCore, CloneSharesWeights) {
  Program p(context);
  p.parameters().Insert(StrAttribute::Get(context, "w"), {Tensor::Scalar<float>(1), false});
  const Program copy = p.Clone();
  EXPECT_TRUE(copy.parameters().Find("w")->data.SharesStorageWith(p.parameters().Find("w")->data));
}

TEST_F(IrCore, MutableIsWhatASetParameterNames) {
  Program p(context);
  for (const char* n : {"w", "m"}) {
    p.parameters().Insert(StrAttribute::Get(context, n), {Tensor::Scalar<float>(1), true});
  }
  Operation* set = Make({}, 0, 0, "builtin.set_parameter");
  set->SetAttribute("name", StrAttribute::Get(context, "m"));
  p.block()->PushBack(set);
  p.RefreshMutability();
  EXPECT_FALSE(p.parameters().Find("w")->is_mutable);
  EXPECT_TRUE(p.parameters().Find("m")->is_mutable);
}

// ---- contexts ----

TEST(IrContext, ThreadsUniqueTheSameThings) {
  IrContext context;
  constexpr int kThreads = 4, kItems = 2000;
  std::vector<std::vector<Attribute>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kItems; ++i) {
        const Attribute name = StrAttribute::Get(context, StrCat("name", i));
        const Type type = VTensorType::Get(context, {i, Dim::Symbol("N") + i}, ElementType::kF32);
        seen[static_cast<size_t>(t)].push_back(
            ArrayAttribute::Get(context, std::vector<Attribute>{name, TypeAttribute::Get(type)}));
        (void)Location::FileLineCol(context, StrCat("file", i % 50), 1, 1);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(seen[static_cast<size_t>(t)], seen[0]);
}

TEST(IrContext, TwoContextsOnTwoThreadsWorkAtOnce) {
  const auto work = [](int seed) {
    IrContext context;
    context.LoadDialect<TestDialect>();
    context.allow_unregistered_ops(true);
    Program p(context);
    Value previous;
    for (int i = 0; i < 20'000; ++i) {
      Builder b = Builder::AtEnd(p.block());
      const Type type = VTensorType::Get(context, {i % 100 + seed}, ElementType::kF32);
      previous = b.Create(context.GetOp<PlainOp>(), std::vector<Value>{previous}, {},
                          std::vector<Type>{type})
                     ->result(0);
    }
    EXPECT_TRUE(StructurallyEqual(p.module(), p.Clone().module()));
  };
  std::thread a(work, 1), b(work, 2);
  a.join();
  b.join();
}

}  // namespace
}  // namespace lathe
