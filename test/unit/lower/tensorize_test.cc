#include <algorithm>
#include <map>

#include "lathe/dialect/loop/loop.h"
#include "lathe/lower/schedule.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::schedule {
namespace {

using codegen::CodeGenerator;
using codegen::KernelSource;
using codegen::Target;

const std::string kI = "v_tensor<[], i64>";

/// Loops that multiply a block of matrices.
struct Nest {
  std::string left = "bf16", right = "bf16", sum = "f32";
  int64_t rows = 16, columns = 16, groups = 16;  // of a tile
  int64_t row_blocks = 1, column_blocks = 1;     // tiles
  int64_t depth_blocks = 0;                      // 0: no loop around that of a tile
  std::string order = "IiJj";                    // of the loops; I, J: over tiles
  bool from_stored = false;                      // sums start from what is there
  bool by_elements = false;                      // an iteration is one product, not a group
  std::vector<std::pair<std::string, std::string>> edits = {};  // of the text, first place each

  int64_t group() const { return left == "bf16" ? 2 : 4; }
  int64_t depth() const { return groups * group() * std::max<int64_t>(depth_blocks, 1); }
  std::string left_type() const {
    return StrCat("v_tensor<[", rows * row_blocks, ", ", depth(), "], ", left, ">");
  }
  std::string right_type() const {
    return StrCat("v_tensor<[", std::max<int64_t>(depth_blocks, 1), ", ", column_blocks, ", ",
                  groups, ", ", columns, ", ", group(), "], ", right, ">");
  }
  std::string sum_type() const {
    return StrCat("v_tensor<[", rows * row_blocks, ", ", columns * column_blocks, "], ", sum, ">");
  }
  std::string memory() const { return sum_type().substr(2); }
};

class Writer {
 public:
  explicit Writer(const Nest& nest) : n_(nest) {}

  lower::Case Write() {
    Zero();
    Fill();
    for (const char c : n_.order) Open(c);
    Index("%row", "%I, %i", StrCat("d0 * ", n_.rows, " + d1"));
    Index("%column", "%J, %j", StrCat("d0 * ", n_.columns, " + d1"));
    std::string start = "%zero";
    if (n_.from_stored) start = Load("%m", n_.memory(), n_.sum, "%row, %column");
    const std::string sum = Sum(start);
    Line(StrCat("loop.store_(%m, ", sum, ", none, %row, %column) : (", n_.memory(), ", ",
                Scalar(n_.sum), ", none, ", kI, ", ", kI, ") -> ", n_.memory()));
    for ([[maybe_unused]] const char c : n_.order) text_ += "cf.yield()\n})\n";
    text_ += StrCat("%r = builtin.to_vtensor(%m) : (", n_.memory(), ") -> ", n_.sum_type(), "\n");
    for (const auto& [from, to] : n_.edits) {
      const size_t found = text_.find(from);
      EXPECT_NE(found, std::string::npos) << from << "\n" << text_;
      text_.replace(found, from.size(), to);
    }
    return {{n_.left_type(), n_.right_type(), n_.sum_type()}, text_, n_.sum_type()};
  }

 private:
  static std::string Scalar(const std::string& element) {
    return StrCat("v_tensor<[], ", element, ">");
  }
  std::string Line(const std::string& what) {
    const std::string name = StrCat("%v", count_++);
    text_ += StrCat(name, " = ", what, "\n");
    return name;
  }
  void Zero() {
    text_ +=
        StrCat("%m = loop.alloc() : () -> ", n_.memory(),
               "\n%zero = builtin.constant() {value = tensor<[], ", n_.sum, "> [0]} : () -> ",
               Scalar(n_.sum),
               "\n%first = builtin.constant() {value = tensor<[], i64> [0]} : () -> ", kI, "\n");
    for (const char c : std::string("IJij")) {  // those that have no loop
      if (n_.order.find(c) != std::string::npos) continue;
      text_ += StrCat("%", std::string(1, c),
                      " = builtin.constant() {value = tensor<[], i64> [0]} : () -> ", kI, "\n");
    }
  }
  // What is stored there before.
  void Fill() {
    text_ += StrCat("loop.for() {extent = ", n_.rows * n_.row_blocks, "} ({\n^(%f: ", kI,
                    "):\nloop.for() {extent = ", n_.columns * n_.column_blocks, "} ({\n^(%g: ", kI,
                    "):\n");
    const std::string v = Load("%c", n_.sum_type(), n_.sum, "%f, %g");
    Line(StrCat("loop.store_(%m, ", v, ", none, %f, %g) : (", n_.memory(), ", ", Scalar(n_.sum),
                ", none, ", kI, ", ", kI, ") -> ", n_.memory()));
    text_ += "cf.yield()\n})\ncf.yield()\n})\n";
  }
  void Open(char c) {
    const int64_t extent = c == 'I'   ? n_.row_blocks
                           : c == 'J' ? n_.column_blocks
                           : c == 'i' ? n_.rows
                                      : n_.columns;
    text_ +=
        StrCat("loop.for() {extent = ", extent, "} ({\n^(%", std::string(1, c), ": ", kI, "):\n");
  }
  void Index(const std::string& name, const std::string& counters, const std::string& expr) {
    const bool two = counters.find(',') != std::string::npos;
    text_ += StrCat(name, " = loop.index(", counters, ") {expr = dim<", expr, ">} : (", kI,
                    two ? ", " + kI : "", ") -> ", kI, "\n");
  }
  std::string Load(const std::string& memory, const std::string& type, const std::string& element,
                   const std::string& at) {
    std::string types;
    for (const char c : at) types += c == '%' ? ", " + kI : "";
    return Line(StrCat("loop.load(", memory, ", none, ", at, ") : (", type, ", none", types,
                       ") -> ", Scalar(element)));
  }
  std::string Binary(const std::string& op, const std::string& a, const std::string& b) {
    const std::string t = Scalar(n_.sum);
    return Line(StrCat(op, "(", a, ", ", b, ") : (", t, ", ", t, ") -> ", t));
  }
  std::string Wide(const std::string& v, const std::string& element) {
    return Line(StrCat("nn.cast(", v, ") {to = ", n_.sum, "} : (", Scalar(element), ") -> ",
                       Scalar(n_.sum)));
  }

  // The sum over all depth.
  std::string Sum(const std::string& start) {
    if (n_.depth_blocks == 0) return Tile("%first", start);
    const std::string t = Scalar(n_.sum);
    text_ += StrCat("%all = loop.for(none, ", start, ") {extent = ", n_.depth_blocks,
                    "} ({\n^(%K: ", kI, ", %s: ", t, "):\n");
    const std::string next = Tile("%K", "%s");
    text_ += StrCat("cf.yield(", next, ") : (", t, ") -> ()\n}) : (none, ", t, ") -> ", t, "\n");
    return "%all";
  }
  // That over the depth of a tile.
  std::string Tile(const std::string& block, const std::string& start) {
    const bool interleaved = n_.sum == "f32" && !n_.by_elements;
    return interleaved ? Interleaved(block, start) : InOrder(block, start);
  }
  std::string Product(const std::string& block, int64_t place) {
    const std::string a = Left(block, place);
    return Binary("nn.mul", a, Right(block, place));
  }
  // At depth %p0, %p1, ...
  std::string Left(const std::string& block, int64_t place) {
    const int64_t step = n_.by_elements ? 1 : n_.group();
    Index(StrCat("%p", place), StrCat(block, ", %k"),
          StrCat("d0 * ", n_.groups * n_.group(), " + d1 * ", step, " + ", place));
    return Wide(Load("%a", n_.left_type(), n_.left, StrCat("%row, %p", place)), n_.left);
  }
  // At place %q0, %q1, ... of group %k, or of group %g.
  std::string Right(const std::string& block, int64_t place) {
    const std::string in = StrCat("%q", place), group = StrCat(n_.group());
    Index(in, "%k", n_.by_elements ? StrCat("mod(d0, ", group, ")") : StrCat(place));
    if (n_.by_elements) Index("%g", "%k", StrCat("floordiv(d0, ", group, ")"));
    const std::string at = StrCat(block, ", %J, ", n_.by_elements ? "%g" : "%k", ", %j, ", in);
    return Wide(Load("%b", n_.right_type(), n_.right, at), n_.right);
  }
  std::string InOrder(const std::string& block, const std::string& start) {
    const std::string t = Scalar(n_.sum);
    text_ += StrCat("%t = loop.for(none, ", start,
                    ") {extent = ", n_.groups * (n_.by_elements ? n_.group() : 1),
                    "} ({\n^(%k: ", kI, ", %u: ", t, "):\n");
    std::string sum = "%u";
    for (int64_t place = 0; place < (n_.by_elements ? 1 : n_.group()); ++place) {
      sum = Binary("nn.add", Product(block, place), sum);
    }
    text_ += StrCat("cf.yield(", sum, ") : (", t, ") -> ()\n}) : (none, ", t, ") -> ", t, "\n");
    return "%t";
  }
  std::string Interleaved(const std::string& block, const std::string& start) {
    const std::string t = Scalar(n_.sum);
    text_ += StrCat("%e, %o = loop.for(none, %zero, %zero) {extent = ", n_.groups,
                    "} ({\n^(%k: ", kI, ", %x: ", t, ", %y: ", t, "):\n");
    const std::string x = Left(block, 1), y = Right(block, 1);
    const std::string odd =
        Line(StrCat("loop.fma(", y, ", ", x, ", %y) : (", t, ", ", t, ", ", t, ") -> ", t));
    const std::string even = Binary("nn.add", "%x", Product(block, 0));
    text_ += StrCat("cf.yield(", even, ", ", odd, ") : (", t, ", ", t, ") -> ()\n}) : (none, ", t,
                    ", ", t, ") -> (", t, ", ", t, ")\n");
    return Binary("nn.add", Binary("nn.add", "%o", "%e"), start);
  }

  const Nest& n_;
  std::string text_;
  int count_ = 0;
};

class TensorizeTest : public lower::LowerTest {
 protected:
  Program Parse(const Nest& nest) {
    return ParseProgram(context_, ProgramOf(Writer(nest).Write()), {.file_locations = false});
  }
  // The loop around the sum.
  static Operation* Outermost(Program& program) {
    Operation* loop = nullptr;
    for (Operation& op : *codegen::FirstFunction(program)->region(0).front()) {
      if (op.isa<loop::ForOp>()) loop = &op;
    }
    return loop;
  }
  // Of all values of 8 bits.
  NamedValues Draw(const Program& program) {
    NamedValues inputs = Inputs(program);
    RandomStream random(7);
    for (auto& [name, value] : inputs) {
      Tensor tensor = value.tensor();
      if (!IsInteger(tensor.element_type()) || BitWidth(tensor.element_type()) != 8) continue;
      auto* at = reinterpret_cast<uint8_t*>(tensor.mutable_raw());
      for (int64_t i = 0; i < tensor.num_elements(); ++i) {
        at[i] = static_cast<uint8_t>(random.NextU32());
      }
      value = tensor;
    }
    return inputs;
  }
  static std::map<std::string, int> Counts(Program& program) {
    std::map<std::string, int> counts;
    for (OpWalker w(codegen::FirstFunction(program)); Operation* op = w.Next();) {
      ++counts[std::string(op->name())];
    }
    return counts;
  }
  // The tiles give, to the bit, what the loops give.
  Program Expect(const Nest& nest) {
    SCOPED_TRACE(StrCat(nest.left, " x ", nest.right, " ", nest.order));
    Program program = Parse(nest);
    const NamedValues inputs = Draw(program);
    const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
    EXPECT_EQ(WhyNotTensorize(Outermost(program)), "");
    Tensorize(Outermost(program));
    VerifyOrThrow(program);
    EXPECT_EQ(Interpreter(program).Run(inputs)[0].second.tensor(), wanted) << Print(program);
    std::vector<Tensor> tensors;
    for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
    const codegen::CompiledKernel kernel(codegen::FirstFunction(program)->region(0).front(),
                                         Target::Host());
    EXPECT_EQ(kernel.Call(tensors, {ZeroLike(wanted)})[0], wanted) << Print(program);
    return program;
  }
  void ExpectRefusal(const Nest& nest, const std::string& why) {
    Program program = Parse(nest);
    const std::string before = Print(program);
    EXPECT_EQ(WhyNotTensorize(Outermost(program)), why) << before;
    try {
      Tensorize(Outermost(program));
      ADD_FAILURE() << "not refused: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "lower/schedule");
      EXPECT_EQ(error.message(), StrCat("tensorize: ", why));
      EXPECT_NE(error.notes().at(0).text.find("\n-> "), std::string::npos);
    }
    EXPECT_EQ(Print(program), before);
  }
};

TEST_F(TensorizeTest, OneTile) {
  for (const bool from_stored : {false, true}) {
    Expect({.from_stored = from_stored});
    Expect({.rows = 5, .columns = 3, .groups = 4, .from_stored = from_stored});
    for (const char* left : {"i8", "u8"}) {
      for (const char* right : {"i8", "u8"}) {
        const Nest nest{.left = left,
                        .right = right,
                        .sum = "i32",
                        .rows = 7,
                        .columns = 9,
                        .groups = 3,
                        .from_stored = from_stored};
        Expect(nest);
        Nest one_by_one = nest;
        one_by_one.by_elements = true;
        Expect(one_by_one);
      }
    }
  }
}

// As many sums as fit are held while the loop goes down the depth.
TEST_F(TensorizeTest, BlocksOfTiles) {
  for (const char* order : {"IiJj", "IJij", "JjIi", "JIji"}) {
    Program program = Expect({.rows = 4,
                              .columns = 16,
                              .groups = 8,
                              .row_blocks = 2,
                              .column_blocks = 2,
                              .depth_blocks = 3,
                              .order = order});
    std::map<std::string, int> counts = Counts(program);
    EXPECT_EQ(counts["loop.tile_zero"], 4);
    EXPECT_EQ(counts["loop.tile_load"], 4);
    EXPECT_EQ(counts["loop.tile_mma"], 4);
    EXPECT_EQ(counts["loop.tile_store_"], 4);
    EXPECT_EQ(counts["loop.for"], 3) << "two that fill, one down the depth";
  }
  Expect({.left = "u8",
          .right = "i8",
          .sum = "i32",
          .rows = 3,
          .groups = 2,
          .row_blocks = 3,
          .depth_blocks = 2,
          .from_stored = true,
          .by_elements = true});
  Expect({.columns = 2, .groups = 1, .column_blocks = 6, .depth_blocks = 1, .from_stored = true});
}

TEST_F(TensorizeTest, OneRowAndOneColumn) {
  Expect({.rows = 1, .order = "Jj"});
  Expect({.columns = 1, .order = "Ii"});
  Expect({.left = "i8", .right = "i8", .sum = "i32", .rows = 1, .columns = 1, .order = "i"});
}

TEST_F(TensorizeTest, AnyDepth) {
  const std::string i = "v_tensor<[], i64>", f = "v_tensor<[], f32>";
  const Nest nest{.rows = 3, .groups = 2, .depth_blocks = 3, .from_stored = true};
  Nest never = nest, known_late = nest;
  never.edits = {{"{extent = 3} ({\n^(%K", "{extent = 0} ({\n^(%K"}};
  Expect(never);
  known_late.edits = {
      {"%first = ",
       StrCat("%n = loop.dim(%b) {axis = 0} : (", nest.right_type(), ") -> ", i, "\n%first = ")},
      {") {extent = 3} ({\n^(%K", ") ({\n^(%K"},
      {"%all = loop.for(none", "%all = loop.for(%n"},
      {StrCat("}) : (none, ", f, ") -> ", f), StrCat("}) : (", i, ", ", f, ") -> ", f)}};
  Expect(known_late);
  // A number that the loops themselves compute is none that is known before them.
  Nest computed = known_late;
  computed.edits[0] = {"%row = ", StrCat("%n = loop.dim(%b) {axis = 0} : (", nest.right_type(),
                                         ") -> ", i, "\n%row = ")};
  ExpectRefusal(computed, "there is loop.dim, which is not part of a sum of products");
}

// Whatever was done to the loops before, and is done to what is left after.
TEST_F(TensorizeTest, AmongOtherPrimitives) {
  std::map<std::string, int> applied;
  const auto apply = [](int64_t which, Operation* loop, RandomStream& random) {
    const auto memory = [&]() {
      const std::vector<Value> all = MemoriesOf(loop);
      if (all.empty()) throw Error(ErrorCode::kInvalidArgument, "lower/schedule", "no memory");
      return all[static_cast<size_t>(random.Int(0, static_cast<int64_t>(all.size()) - 1))];
    };
    if (which == 0) return Split(loop, random.Int(1, 16)), "split";
    if (which == 1) return Interchange(loop), "interchange";
    if (which == 2) return Parallel(loop), "parallel";
    if (which == 3) return CacheRead(loop, memory()), "cache_read";
    if (which == 4) return CacheWrite(loop, memory()), "cache_write";
    return Tensorize(loop), "tensorize";
  };
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    RandomStream random(seed);
    const bool from_stored = random.Int(0, 2) == 0;
    Program program = Parse({.left = "u8",
                             .right = "i8",
                             .sum = "i32",
                             .rows = random.Int(2, 20),
                             .columns = random.Int(2, 20),
                             .groups = random.Int(1, 3),
                             .order = "ij",
                             .from_stored = from_stored,
                             .by_elements = random.Int(0, 1) == 0});
    const NamedValues inputs = Draw(program);
    const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
    Operation* function = codegen::FirstFunction(program);
    for (int step = 0; step < 10; ++step) {
      std::vector<Operation*> loops;
      for (OpWalker w(function); Operation* op = w.Next();) {
        if (op->isa<loop::ForOp>()) loops.push_back(op);
      }
      Operation* loop =
          loops[static_cast<size_t>(random.Int(0, static_cast<int64_t>(loops.size()) - 1))];
      const std::string before = Print(program);
      try {
        ++applied[apply(random.Int(0, 7), loop, random)];
      } catch (const Error& error) {
        ASSERT_EQ(error.id(), "lower/schedule") << error.what();
        ASSERT_EQ(Print(program), before);
        continue;
      }
      VerifyOrThrow(program);
      ASSERT_EQ(Interpreter(program).Run(inputs)[0].second.tensor(), wanted)
          << "seed " << seed << "\n"
          << before << Print(program);
    }
  }
  EXPECT_GT(applied["tensorize"], 10);
}

TEST_F(TensorizeTest, TheUnitHoldsTheSums) {
  Program program = Expect({.row_blocks = 2, .column_blocks = 2, .depth_blocks = 5});
  const KernelSource source{"k", codegen::FirstFunction(program)->region(0).front()};
  const std::string text = CodeGenerator::Get().EmitText({&source, 1}, Target::Named("amx"),
                                                         codegen::CodeText::kAssembly);
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("tdpbf16ps"), 4) << text;
  EXPECT_EQ(count("tileloadd"), 4) << text;
  EXPECT_EQ(count("tilestored"), 4) << text;
}

TEST_F(TensorizeTest, RefusesExtents) {
  ExpectRefusal({.rows = 17}, "a tile has at most 16 rows, not 17");
  ExpectRefusal({.columns = 17}, "a tile has at most 16 columns, not 17");
  ExpectRefusal({.groups = 17}, "a tile has at most 16 groups of depth, not 17");
  ExpectRefusal({.row_blocks = 3, .column_blocks = 2},
                "blocks of 3 x 2 tiles need 10 registers; there are 8");
  const Nest bytes{
      .left = "i8", .right = "i8", .sum = "i32", .rows = 3, .groups = 2, .by_elements = true};
  const auto edited = [&](const std::string& from, const std::string& to) {
    Nest nest = bytes;
    nest.edits = {{from, to}};
    return nest;
  };
  ExpectRefusal(edited("{extent = 3} ({\n^(%i", "{extent = 0} ({\n^(%i"), "a loop never runs");
  ExpectRefusal(edited("{extent = 8} ({\n^(%k", "{extent = 0} ({\n^(%k"), "a loop never runs");
  ExpectRefusal(edited("{extent = 8} ({\n^(%k", "{extent = 7} ({\n^(%k"),
                "the depth 7 is not a multiple of 4");
  ExpectRefusal({.left = "i8",
                 .right = "i8",
                 .sum = "i32",
                 .edits = {{"loop.for(none, %zero) {extent = 16}", "loop.for(%first, %zero)"},
                           {"}) : (none, v_tensor<[], i32>)",
                            "}) : (v_tensor<[], i64>, v_tensor<[], i32>)"}}},
                "the depth of a tile is not constant");
  ExpectRefusal({.columns = 9,
                 .order = "ij",
                 .edits = {{"loop.for() {extent = 9} ({\n^(%j", "loop.for(%first) ({\n^(%j"},
                           {"cf.yield()\n})\ncf.yield()\n})\n%r",
                            "cf.yield()\n}) : (v_tensor<[], i64>) -> ()\ncf.yield()\n})\n%r"}}},
                "the extent of a loop over rows or columns is not constant");
}

TEST_F(TensorizeTest, RefusesTypesAndOrders) {
  const std::string interleaved = "sums of floats are not interleaved, as a tile unit has them";
  ExpectRefusal({.by_elements = true}, interleaved);
  ExpectRefusal({.left = "i8", .right = "bf16", .sum = "i32"},
                "a tile unit does not sum products of i8 and bf16 in i32");
  ExpectRefusal({.left = "i16", .right = "i16", .sum = "i32"},
                "a tile unit does not sum products of i16 and i16 in i32");
  // What follows from sums that start from -0 is not what follows from tiles of zeros.
  ExpectRefusal({.edits = {{"[0]", "[-0.0]"}}}, "what is stored is not a sum of products");
}

TEST_F(TensorizeTest, RefusesOtherSums) {
  const Nest bytes{.left = "i8", .right = "i8", .sum = "i32", .rows = 4, .columns = 4, .groups = 2};
  const auto refuse = [&](std::vector<std::pair<std::string, std::string>> edits,
                          const std::string& why, bool from_stored = false) {
    Nest nest = bytes;
    nest.edits = std::move(edits);
    nest.from_stored = from_stored;
    ExpectRefusal(nest, why);
  };
  const std::string one =
      "%one = builtin.constant() {value = tensor<[], i32> [1]} : () -> v_tensor<[], i32>\n";
  refuse({{"loop.store_(%m, %t", "loop.store_(%m, %zero"}},
         "what is stored is not a sum of products");
  refuse({{"nn.mul", "nn.sub"}}, "a sum over the depth is not a sum of products");
  refuse({{"= nn.add(", "= nn.mul("}}, "a sum over the depth is not a sum of products");
  refuse({{"%first = ", one + "%first = "}, {"loop.for(none, %zero)", "loop.for(none, %one)"}},
         "a sum starts neither from zero nor from what was stored");
  refuse({{"loop.load(%m, none, %row, %column)", "loop.load(%m, none, %column, %row)"}},
         "a sum starts from another element than the one that is stored", true);
  refuse({{"%row = ", "%w = nn.neg(%zero) : (v_tensor<[], i32>) -> v_tensor<[], i32>\n%row = "}},
         "there is nn.neg, which is not part of a sum of products");
}

TEST_F(TensorizeTest, RefusesPlaces) {
  const Nest bytes{.left = "i8",
                   .right = "i8",
                   .sum = "i32",
                   .rows = 4,
                   .columns = 4,
                   .groups = 2,
                   .row_blocks = 2};
  const auto refuse = [&](std::vector<std::pair<std::string, std::string>> edits,
                          const std::string& why) {
    Nest nest = bytes;
    nest.edits = std::move(edits);
    ExpectRefusal(nest, why);
  };
  const std::string left = "loop.load(%a, none, %row, %p0)", right = "%J, %k, %j, %q0)";
  refuse({{left, "loop.load(%a, none, %p0, %row)"}},
         "columns of the left factor are not 4 elements of a row apart");
  refuse({{"{expr = dim<d0 * 4 + d1>", "{expr = dim<d0 * 4 + 2 * d1>"}},
         "rows of the left factor are not one step along an axis apart");
  refuse({{"d0 * 8 + d1 * 4 + 0", "d0 * 8 + d1 * 3 + 0"}},
         "columns of the left factor are not 4 elements of a row apart");
  refuse({{right, "%J, %j, %k, %q0)"}},
         "columns of the right factor are not 4 elements of a row apart");
  refuse({{"d0 * 8 + d1 * 4 + 3", "d0 * 8 + d1 * 4 + 4"}},
         "factors of one product have different places in a group");
  refuse({{"d0 * 8 + d1 * 4 + 3", "d0 * 8 + d1 * 4 + 2"}, {"dim<3>", "dim<2>"}},
         "the products of an iteration are not those of a group");
  refuse({{"{expr = dim<d0 * 4 + d1>", "{expr = dim<d0 * 3 + d1>"}},
         "iterations may store in the same place");
  refuse({{right, "%J, %k, %j, %i)"}}, "a loop moves both factors, and is not the depth");
  refuse({{"loop.store_(%m, %t, none, %row", "loop.store_(%m, %t, none, %first"}},
         "a loop does not move what is stored");
  refuse({{"loop.load(%a, none, %row, %p0)", "loop.load(%a, none, %first, %p0)"}},
         "a loop moves neither factor");
}

TEST_F(TensorizeTest, RefusesWhatIsNoLoop) {
  Program program = Parse({});
  Operation* alloc = codegen::FirstFunction(program)->region(0).front()->front();
  EXPECT_EQ(WhyNotTensorize(alloc), "loop.alloc is not a loop");
}

// Tiles are read and stored, too.
TEST_F(TensorizeTest, OtherPrimitivesSeeTiles) {
  Program program = Parse({.row_blocks = 2, .order = "IiJj"});
  Operation* loop = Outermost(program);
  Tensorize(PerfectlyNested(loop));
  EXPECT_EQ(WhyNotParallel(loop), "tiles are stored");
  const Value memory = codegen::FirstFunction(program)->region(0).front()->front()->result(0);
  EXPECT_EQ(WhyNotCacheWrite(loop, memory), "loop.tile_store_ reaches the memory in another way");
}

}  // namespace
}  // namespace lathe::schedule
