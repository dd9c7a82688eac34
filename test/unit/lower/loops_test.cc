#include <algorithm>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string F32(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }
std::string I64(const std::string& dims) { return StrCat("v_tensor<[", dims, "], i64>"); }

// "%name = builtin.constant() ..." of a list of integers.
std::string Ints(const std::string& name, const std::string& values) {
  const auto count = std::ranges::count(values, ',') + (values.empty() ? 0 : 1);
  return StrCat("%", name, " = builtin.constant() {value = tensor<[", count, "], i64> [", values,
                "]} : () -> ", I64(StrCat(count)), "\n");
}

class LoopsTest : public LowerTest {
 protected:
  // A function of one operation on %a, %b, ... and constants before it.
  void ExpectOp(const std::vector<std::string>& arguments, const std::string& before,
                const std::string& op, const std::string& result) {
    Expect({arguments, StrCat(before, "%r = ", op, " -> ", result), result}, "loops");
  }
};

TEST_F(LoopsTest, Concat) {
  for (const char* dims : {"2, 3, 5, 7", "2, 1, 5, 7"}) {
    const std::string a = F32(dims), b = F32("2, 4, 5, 7");
    const int extent = dims[3] - '0' + 4;
    ExpectOp({a, b}, "", StrCat("nn.concat(%a, %b) {axis = 1} : (", a, ", ", b, ")"),
             F32(StrCat("2, ", extent, ", 5, 7")));
  }
  const std::string a = F32("3, 4"), e = F32("3, 0"), b = F32("3, 17");
  ExpectOp({a, e, b, a}, "",
           StrCat("nn.concat(%a, %b, %c, %d) {axis = -1} : (", a, ", ", e, ", ", b, ", ", a, ")"),
           F32("3, 25"));
}

TEST_F(LoopsTest, ConcatOfSymbolicExtents) {
  const std::string a = F32("2, P, 8"), b = F32("2, 1, 8"), c = F32("2, P + 1, 8");
  for (const int64_t n : {0, 1, 5, 16}) {
    symbol_ = n;
    ExpectOp({a, b}, "", StrCat("nn.concat(%a, %b) {axis = 1} : (", a, ", ", b, ")"), c);
  }
}

TEST_F(LoopsTest, ElementwiseAroundConcat) {
  const std::string a = F32("2, 3, 6"), b = F32("2, 5, 6"), s = F32("8, 1"), c = F32("2, 8, 6");
  Expect({{a, b, s},
          StrCat("%x = nn.relu(%a) : (", a, ") -> ", a, "\n%y = nn.concat(%x, %b) {axis = 1} : (",
                 a, ", ", b, ") -> ", c, "\n%r = nn.mul(%y, %c) : (", c, ", ", s, ") -> ", c),
          c},
         "loops");
}

// The piece that copies is divided as the reshape is; the whole axis is not a multiple of that.
TEST_F(LoopsTest, PadOfAReshape) {
  for (const auto& [from, length, more] :
       {std::tuple("2, 2, 1", 4, 1), std::tuple("3, 3", 9, 2), std::tuple("2, 1, 7", 14, 12)}) {
    const std::string a = F32(from), m = F32(StrCat(length)), r = F32(StrCat(length + more));
    Expect({{a},
            StrCat(Ints("s", "-1"), Ints("p", StrCat("0, ", more)), "%m = nn.reshape(%a, %s) : (",
                   a, ", ", I64("1"), ") -> ", m, "\n%r = nn.pad(%m, %p) {mode = \"edge\"} : (", m,
                   ", ", I64("2"), ") -> ", r),
            r},
           "loops");
  }
}

// How many elements there are is computed by the kernel: the extent is not a symbol of its own.
TEST_F(LoopsTest, SliceBackwardsOfAnExpression) {
  for (const int64_t n : {1, 3, 4, 6, 9}) {
    symbol_ = n;
    const std::string a = F32("max(0, P - 3), 8"), i = I64("1");
    const std::string bounds =
        StrCat(Ints("s", "-1"), Ints("e", "-9223372036854775808"), Ints("x", "0"), Ints("t", "-2"));
    ExpectOp({a}, bounds,
             StrCat("nn.slice(%a, %s, %e, %x, %t) : (", a, ", ", i, ", ", i, ", ", i, ", ", i, ")"),
             F32("floordiv(max(0, P - 3) + 1, 2), 8"));
  }
}

// Reads neighbors along an outer loop, from a place that each iteration looks up.
TEST_F(LoopsTest, GatherOfATranspose) {
  const std::string a = F32("2, 11, 2, 1"), m = F32("1, 11, 2, 2"), r = F32("1, 2, 2");
  Expect({{a, "v_tensor<[], i32>"},
          StrCat("%m = nn.transpose(%a) {perm = [3, 1, 2, 0]} : (", a, ") -> ", m,
                 "\n%r = nn.gather(%m, %b) {axis = 1} : (", m, ", v_tensor<[], i32>) -> ", r),
          r},
         "loops");
}

TEST_F(LoopsTest, Split) {
  const std::string t = F32("2, 7, 3");
  for (int i = 0; i < 3; ++i) {
    const int extents[] = {2, 1, 4};
    const std::string names[] = {"%r, %u, %v", "%u, %r, %v", "%u, %v, %r"};
    const std::string result = F32(StrCat("2, ", extents[i], ", 3"));
    Expect({{t},
            StrCat(Ints("s", "2, 1, 4"), names[i], " = nn.split(%a, %s) {axis = 1} : (", t, ", ",
                   I64("3"), ") -> (", F32("2, 2, 3"), ", ", F32("2, 1, 3"), ", ", F32("2, 4, 3"),
                   ")"),
            result},
           "loops");
  }
}

TEST_F(LoopsTest, Slice) {
  const std::string t = F32("5, 6, 40");
  ExpectOp({t},
           StrCat(Ints("s", "1, -1"), Ints("e", "100, -5"), Ints("x", "0, 1"), Ints("t", "2, -2")),
           StrCat("nn.slice(%a, %s, %e, %x, %t) : (", t, ", ", I64("2"), ", ", I64("2"), ", ",
                  I64("2"), ", ", I64("2"), ")"),
           F32("2, 2, 40"));
  const std::string n = F32("N, 33");
  for (const int64_t extent : {2, 3, 5, 20}) {
    symbol_ = extent;
    ExpectOp({n}, StrCat(Ints("s", "-2, 3"), Ints("e", "9223372036854775807, 20")),
             StrCat("nn.slice(%a, %s, %e) : (", n, ", ", I64("2"), ", ", I64("2"), ")"),
             F32("min(N, 2), 17"));
  }
}

TEST_F(LoopsTest, Pad) {
  const std::string t = F32("2, 5, 6");
  for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
    ExpectOp({t}, Ints("p", "0, 2, -1, 0, 1, 4"),
             StrCat("nn.pad(%a, %p) {mode = \"", mode, "\"} : (", t, ", ", I64("6"), ")"),
             F32("2, 8, 9"));
  }
}

TEST_F(LoopsTest, ReadsInSteps) {
  const std::string t = F32("45, 3");
  ExpectOp({t}, StrCat(Ints("s", "1, 1"), Ints("e", "45, 2"), Ints("x", "0, 1"), Ints("t", "3, 1")),
           StrCat("nn.slice(%a, %s, %e, %x, %t) : (", t, ", ", I64("2"), ", ", I64("2"), ", ",
                  I64("2"), ", ", I64("2"), ")"),
           F32("15, 1"));
  ExpectOp({t}, "", StrCat("nn.transpose(%a) : (", t, ")"), F32("3, 45"));
}

TEST_F(LoopsTest, Transpose) {
  const std::string t = F32("3, 5, 2, 17");
  ExpectOp({t}, "", StrCat("nn.transpose(%a) : (", t, ")"), F32("17, 2, 5, 3"));
  ExpectOp({t}, "", StrCat("nn.transpose(%a) {perm = [0, 2, 1, 3]} : (", t, ")"),
           F32("3, 2, 5, 17"));
  const std::string large = F32("3, 70, 90");
  ExpectOp({large}, "", StrCat("nn.transpose(%a) {perm = [0, 2, 1]} : (", large, ")"),
           F32("3, 90, 70"));
  const std::string symbolic = F32("N, 4, M");
  for (const int64_t n : {0, 1, 9, 33}) {
    symbol_ = n;
    ExpectOp({symbolic}, "", StrCat("nn.transpose(%a) {perm = [2, 0, 1]} : (", symbolic, ")"),
             F32("M, N, 4"));
  }
}

// The loop along which elements are neighbors is the outermost one, and its extent is computed.
TEST_F(LoopsTest, TransposeOfComputedExtents) {
  const std::string t = F32("4, 30, N"), x = F32("4, 30, max(N - 1, 0)");
  const std::string y = F32("max(N - 1, 0), 30, 4");
  for (const int64_t n : {0, 1, 2, 9, 34}) {
    symbol_ = n;
    Expect({{t},
            StrCat(Ints("s", "1"), Ints("e", "9223372036854775807"), Ints("x", "2"),
                   "%x1 = nn.slice(%a, %s, %e, %x, none) : (", t, ", ", I64("1"), ", ", I64("1"),
                   ", ", I64("1"), ", none) -> ", x, "\n%r = nn.transpose(%x1) : (", x, ") -> ", y),
            y},
           "loops");
  }
}

// Which element is read is loaded in the loop: a square of them is not read before that.
TEST_F(LoopsTest, TransposeOfGathered) {
  const std::string t = F32("9, 6, 20"), x = F32("9, 20"), y = F32("20, 9");
  below_ = 6;
  for (const char* index : {"", "9"}) {
    const std::string i = I64(index);
    const std::string gathered = *index == 0 ? x : F32("9, 9, 20");
    const std::string turned = *index == 0 ? y : F32("20, 9, 9");
    Expect({{t, i},
            StrCat("%x = nn.gather(%a, %b) {axis = 1} : (", t, ", ", i, ") -> ", gathered,
                   "\n%r = nn.transpose(%x) : (", gathered, ") -> ", turned),
            turned},
           "loops");
  }
}

// Many operands have a loop nest each, whose places follow from the extents before.
TEST_F(LoopsTest, ConcatOfManySymbols) {
  for (const int64_t n : {0, 1, 3}) {
    symbol_ = n;
    std::vector<std::string> types;
    std::string operands, listed, extent, summed;
    for (int i = 0; i < 16; ++i) {
      const std::string symbol = StrCat(std::string(1, static_cast<char>('A' + i)), "0");
      types.push_back(F32(StrCat("2, ", symbol, ", 5")));
      operands += StrCat(i == 0 ? "%" : ", %", std::string(1, static_cast<char>('a' + i)));
      listed += StrCat(i == 0 ? "" : ", ", types.back());
      extent += StrCat(i == 0 ? "" : " + ", symbol);
    }
    const std::string y = F32(StrCat("2, ", extent, ", 5"));
    Expect({types,
            StrCat("%y = nn.concat(", operands, ") {axis = 1} : (", listed, ") -> ", y,
                   "\n%r = nn.relu(%y) : (", y, ") -> ", y),
            y},
           "loops");
  }
}

// As heads of detectors are put together: each operand is turned by loops of its own, before what
// reads elements of several.
TEST_F(LoopsTest, ConcatOfTransposes) {
  const std::string a = F32("2, 6, 3, N"), at = F32("2, 3, N, 6"), ar = F32("2, 6*N, 3"),
                    b = F32("2, 3, 2, 2"), bt = F32("2, 2, 2, 3"), br = F32("2, 4, 3"),
                    y = F32("2, 6*N + 4, 3");
  for (const int64_t n : {0, 1, 2, 17}) {
    symbol_ = n;
    Expect({{a, b},
            StrCat(Ints("s", "2, -1, 3"), "%t = nn.transpose(%a) {perm = [0, 2, 3, 1]} : (", a,
                   ") -> ", at, "\n%u = nn.reshape(%t, %s) : (", at, ", ", I64("3"), ") -> ", ar,
                   "\n%v = nn.transpose(%b) {perm = [0, 2, 3, 1]} : (", b, ") -> ", bt,
                   "\n%w = nn.reshape(%v, %s) : (", bt, ", ", I64("3"), ") -> ", br,
                   "\n%y = nn.concat(%u, %w) {axis = 1} : (", ar, ", ", br, ") -> ", y,
                   "\n%z = nn.relu(%y) : (", y, ") -> ", y, "\n%r = nn.add(%y, %z) : (", y, ", ", y,
                   ") -> ", y),
            y},
           "loops");
  }
}

// What an element is read from is an expression of that of the operation before: it must not
// double with each.
TEST_F(LoopsTest, ManyShuffles) {
  const std::string t = F32("4, 36"), b = F32("4, 4, 9"), c = F32("9, 4, 4");
  std::string body = Ints("s", "4, 4, 9") + Ints("q", "4, 36"), from = "%a";
  for (int i = 0; i < 12; ++i) {
    body +=
        StrCat("%x", i, " = nn.reshape(", from, ", %s) : (", t, ", ", I64("3"), ") -> ", b, "\n%y",
               i, " = nn.transpose(%x", i, ") {perm = [2, 0, 1]} : (", b, ") -> ", c, "\n%z", i,
               " = nn.reshape(%y", i, ", %q) : (", c, ", ", I64("2"), ") -> ", t, "\n");
    from = StrCat("%z", i);
  }
  Expect({{t}, StrCat(body, "%r = nn.relu(", from, ") : (", t, ") -> ", t), t}, "loops");
}

TEST_F(LoopsTest, ReshapesOfHighRank) {
  std::string dims, ones, turned;
  for (int i = 0; i < 8; ++i) {
    dims += StrCat(i == 0 ? "" : ", ", static_cast<char>('A' + i) + std::string("0"));
    turned = StrCat(static_cast<char>('A' + i) + std::string("0"), i == 0 ? "" : ", ", turned);
  }
  const std::string a = F32(StrCat(dims, ", ", dims)), b = F32(StrCat(turned, ", ", turned));
  symbol_ = 1;
  std::string order;
  for (int i = 15; i >= 0; --i) order += StrCat(i == 15 ? "" : ", ", i);
  ExpectOp({a}, "", StrCat("nn.transpose(%a) {perm = [", order, "]} : (", a, ")"), b);
}

// The channels of groups take turns.
TEST_F(LoopsTest, TransposeAmongReshapes) {
  const std::string a = F32("2, 12, 3, 3"), b = F32("2, 4, 3, 3, 3"), c = F32("2, 3, 4, 3, 3");
  Expect(
      {{a, a},
       StrCat(Ints("s", "2, 4, 3, 3, 3"), Ints("t", "2, 12, 3, 3"), "%x = nn.reshape(%a, %s) : (",
              a, ", ", I64("5"), ") -> ", b, "\n%y = nn.transpose(%x) {perm = [0, 2, 1, 3, 4]} : (",
              b, ") -> ", c, "\n%z = nn.reshape(%y, %t) : (", c, ", ", I64("4"), ") -> ", a,
              "\n%r = nn.add(%z, %b) : (", a, ", ", a, ") -> ", a),
       a},
      "loops");
}

TEST_F(LoopsTest, Gather) {
  const std::string t = F32("4, 6, 19");
  below_ = 4;
  ExpectOp({t, I64("2, 3")}, "", StrCat("nn.gather(%a, %b) : (", t, ", ", I64("2, 3"), ")"),
           F32("2, 3, 6, 19"));
  ExpectOp({t, I64("3")}, "", StrCat("nn.gather(%a, %b) {axis = -1} : (", t, ", ", I64("3"), ")"),
           F32("4, 6, 3"));
  const std::string i = I64("4, 3, 19");
  ExpectOp({t, i}, "", StrCat("nn.gather_elements(%a, %b) {axis = 1} : (", t, ", ", i, ")"),
           F32("4, 3, 19"));
  ExpectOp({t, I64("5, 2")}, "", StrCat("nn.gather_nd(%a, %b) : (", t, ", ", I64("5, 2"), ")"),
           F32("5, 19"));
}

// Vectors of elements that lie anywhere, or in the other order.
TEST_F(LoopsTest, GathersInVectors) {
  below_ = 19;
  for (const char* element : {"f32", "i8", "f64"}) {
    const auto type = [&](const char* dims) {
      return StrCat("v_tensor<[", dims, "], ", element, ">");
    };
    const std::string t = type("4, 19"), r = type("4, 37"), i = I64("37"), e = I64("4, 37");
    const std::string twice = StrCat("\n%r = nn.add(%y, %y) : (", r, ", ", r, ") -> ", r);
    Expect(
        {{t, i}, StrCat("%y = nn.gather(%a, %b) {axis = 1} : (", t, ", ", i, ") -> ", r, twice), r},
        "loops");
    Expect({{t, e},
            StrCat("%y = nn.gather_elements(%a, %b) {axis = 1} : (", t, ", ", e, ") -> ", r, twice),
            r},
           "loops");
    const std::string bounds =
        StrCat(Ints("s", "-1"), Ints("e", "-9223372036854775808"), Ints("x", "1"), Ints("t", "-1"));
    const std::string one = I64("1");
    Expect({{r},
            StrCat(bounds, "%y = nn.slice(%a, %s, %e, %x, %t) : (", r, ", ", one, ", ", one, ", ",
                   one, ", ", one, ") -> ", r, twice),
            r},
           "loops");
  }
}

// Of pairs of indices each is multiplied by what the extents say.
TEST_F(LoopsTest, GathersPairsOfSymbols) {
  for (const int64_t n : {1, 4, 9, 23}) {
    symbol_ = n;
    below_ = n;
    const std::string t = F32("P, P + 3"), i = I64("P + 7, 2"), r = F32("P + 7");
    Expect({{t, i},
            StrCat("%y = nn.gather_nd(%a, %b) : (", t, ", ", i, ") -> ", r,
                   "\n%r = nn.add(%y, %y) : (", r, ", ", r, ") -> ", r),
            r},
           "loops");
  }
}

// Of two extents either may be 1.
TEST_F(LoopsTest, SliceBesideAnotherSymbol) {
  const std::string a = F32("3, P + 2"), b = F32("3, Q"), x = F32("3, P"), i = I64("1");
  const std::string r = F32("3, broadcast(P, Q)");
  const std::string bounds = StrCat(Ints("s", "1"), Ints("e", "-1"), Ints("x", "1"));
  for (const int64_t n : {0, 1, 5, 16, 37}) {
    symbol_ = n;
    Expect({{a, b},
            StrCat(bounds, "%x0 = nn.slice(%a, %s, %e, %x) : (", a, ", ", i, ", ", i, ", ", i,
                   ") -> ", x, "\n%y = nn.relu(%x0) : (", x, ") -> ", x,
                   "\n%r = nn.add(%y, %b) : (", x, ", ", b, ") -> ", r),
            r},
           "loops");
  }
}

TEST_F(LoopsTest, SplitsLargeCopiesForThreads) {
  const std::string a = F32("1, 3, 101, 131"), b = F32("1, 2, 101, 131");
  ExpectOp({a, b}, "", StrCat("nn.concat(%a, %b) {axis = 1} : (", a, ", ", b, ")"),
           F32("1, 5, 101, 131"));
}

// Extents that no argument has are those that an operand states.
TEST_F(LoopsTest, FindsComputedExtents) {
  const std::string s = I64("1"), t = F32("40, 7"), r = F32("N, 7");
  below_ = 9;
  for (const char* op : {"nn.slice(%c, %a, %b)", "nn.slice(%c, %b, %a)"}) {
    Program program =
        ParseProgram(context_,
                     ProgramOf({{s, s, t},
                                StrCat("%x = ", op, " : (", t, ", ", s, ", ", s, ") -> ", r,
                                       "\n%r = nn.neg(%x) : (", r, ") -> ", r),
                                r}),
                     {.file_locations = false});
    const NamedValues inputs = Inputs(program);
    const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
    const Lowered lowered =
        LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()));
    ASSERT_TRUE(lowered.done) << lowered.why_not;
    EXPECT_EQ(Interpreter(program).Run(inputs)[0].second.tensor(), wanted);
  }
}

TEST_F(LoopsTest, SaysWhyNot) {
  const std::string t = F32("3, 5"), s = I64("1"), r = F32("2, 5");
  const auto why = [&](const Case& c) {
    const std::string all = Refusal(c);
    return all.substr(std::min(all.find("loops: "), all.size()));
  };
  const std::string m = F32("M, 5"), two = I64("2");
  EXPECT_EQ(why({{m, two},
                 StrCat("%r = nn.reshape(%a, %b) : (", m, ", ", two, ") -> ", F32("N, 5")),
                 F32("N, 5")}),
            "loops: no argument has extent N");
  EXPECT_EQ(
      why({{m, two},
           StrCat("%x = nn.reshape(%a, %b) : (", m, ", ", two, ") -> ", F32("N, 5"), "\n",
                  "%once = builtin.constant() {value = tensor<[2], i64> [1, 1]} : () -> ", two,
                  "\n%r = nn.tile(%x, %once) : (", F32("N, 5"), ", ", two, ") -> ", F32("N, 5")),
           F32("N, 5")}),
      "loops: no argument has extent N");
  EXPECT_EQ(
      why({{t, s, s, s},
           StrCat("%r = nn.slice(%a, %b, %c, %d) : (", t, ", ", s, ", ", s, ", ", s, ") -> ", r),
           r}),
      "loops: nn.slice takes sizes that are computed");
}

}  // namespace
}  // namespace lathe::lower
