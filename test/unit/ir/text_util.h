#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "lathe/ir/asm_parser.h"
#include "lathe/ir/dialect.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"

namespace lathe::testing {

/// A type `t.vec<N>` and an attribute `t.pair<A, B>` of a dialect.
struct VecStorage : TypeStorage {
  using Key = int64_t;
  explicit VecStorage(Key key) : size(key) {}
  bool operator==(Key key) const { return size == key; }
  static uint64_t Hash(Key key) { return static_cast<uint64_t>(key); }
  static VecStorage* Create(Arena& arena, Key key) { return arena.New<VecStorage>(key); }
  int64_t size;
};
class VecType : public TypeBase<VecType, VecStorage> {
 public:
  using TypeBase::TypeBase;
  int64_t size() const { return impl()->size; }
};

struct PairStorage : AttributeStorage {
  using Key = std::pair<Attribute, Type>;
  explicit PairStorage(const Key& key) : pair(key) {}
  bool operator==(const Key& key) const { return pair == key; }
  static uint64_t Hash(const Key& key) {
    return reinterpret_cast<uintptr_t>(key.first.storage()) +
           reinterpret_cast<uintptr_t>(key.second.storage());
  }
  static PairStorage* Create(Arena& arena, const Key& key) { return arena.New<PairStorage>(key); }
  Key pair;
};
class PairAttribute : public AttrBase<PairAttribute, PairStorage> {
 public:
  using AttrBase::AttrBase;
};

/// The module op and what programs of these tests use; other ops are made up on demand.
class BuiltinDialect : public Dialect {
 public:
  static constexpr const char* kName = "builtin";
  explicit BuiltinDialect(IrContext& context) : Dialect(context, kName) {
    context.RegisterOp(*this, TypeId::Get<BuiltinDialect>(), "builtin.module", nullptr, {}, {});
    context.RegisterOp(*this, TypeId::Get<int>(), "builtin.get_parameter", nullptr, {}, {});
  }
};

class TestDialect : public Dialect {
 public:
  static constexpr const char* kName = "t";
  explicit TestDialect(IrContext& context) : Dialect(context, kName) {
    context.RegisterKind<VecType>("t.vec", this, [](const void* s, PrinterBase& out) {
      out << "<";
      out.PrintInt(static_cast<const VecStorage*>(s)->size);
      out << ">";
    });
    context.RegisterKind<PairAttribute>("t.pair", this, [](const void* s, PrinterBase& out) {
      const auto& pair = static_cast<const PairStorage*>(s)->pair;
      out << "<";
      out.Print(pair.first);
      out << ", ";
      out.Print(pair.second);
      out << ">";
    });
  }
  Type ParseType(std::string_view keyword, AsmParser& parser) override {
    if (keyword != "vec") return {};
    parser.Expect("<");
    const int64_t size = parser.ParseInt();
    if (size < 0) parser.Fail("a vec has no negative size", "write its length");
    parser.Expect(">");
    return context().Get<VecType>(size);
  }
  Attribute ParseAttribute(std::string_view keyword, AsmParser& parser) override {
    if (keyword != "pair") return {};
    parser.Expect("<");
    const Attribute first = parser.ParseAttribute();
    parser.Expect(",");
    const Type second = parser.ParseType();
    parser.Expect(">");
    return context().Get<PairAttribute>({first, second});
  }
};

/// A context with the dialects above; unknown ops are made up.
class TextTest : public ::testing::Test {
 protected:
  TextTest() {
    context_.LoadDialect<BuiltinDialect>();
    context_.LoadDialect<TestDialect>();
    context_.allow_unregistered_ops(true);
  }

  /// The error of `fn`, rendered; fails the test if there is none.
  template <class Fn>
  static std::string ErrorOf(Fn&& fn) {
    try {
      fn();
    } catch (const Error& error) {
      return error.Render();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  std::string ParseError(std::string_view text, const ParseOptions& options = {}) {
    return ErrorOf([&] { ParseProgram(context_, text, options); });
  }

  /// Prints, parses, compares; prints again, compares the text.
  void ExpectRoundTrip(const Program& program) {
    const std::string text = Print(program);
    const Program again = ParseProgram(context_, text, {.file_locations = false});
    std::string why;
    EXPECT_TRUE(StructurallyEqual(program.module(), again.module(), true, &why)) << why << text;
    EXPECT_EQ(Print(again), text);
  }

  IrContext context_;
};

}  // namespace lathe::testing
