#include "src/runtime/stoppable_team.h"
#include "test/unit/codegen/kernel_util.h"

namespace lathe::codegen {
namespace {

class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  // Compares every target, alone and with a team, with the interpreter.
  void Expect(const std::string& text, double rtol = 0) {
    Program program = ParseProgram(context_, text, {.file_locations = false});
    Operation* function = FirstFunction(program);
    NamedValues inputs;
    std::vector<Tensor> tensors;
    uint64_t seed = 1;
    for (const auto& feed : program.feeds()) {
      const auto type = feed->result(0).type().cast<AnyTensorType>();
      Shape shape;
      for (const Dim& d : type.dims()) shape.push_back(d.is_constant() ? d.value() : 5);
      tensors.push_back(RandomTensor(type.element(), shape, seed++));
      inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(), tensors.back());
    }
    const NamedValues wanted = Interpreter(program).Run(inputs);
    std::vector<Tensor> outputs;
    for (const auto& [name, value] : wanted) outputs.push_back(ZeroLike(value.tensor()));
    for (const Target* target : RunnableTargets()) {
      const CompiledKernel kernel(function->region(0).front(), *target);
      runtime::WorkerTeam team(3);
      for (KernelTeam* t : {static_cast<KernelTeam*>(nullptr), static_cast<KernelTeam*>(&team)}) {
        const auto got = kernel.Call(tensors, outputs, t);
        for (size_t i = 0; i < got.size(); ++i) {
          const Closeness close = AllClose(got[i], wanted[i].second.tensor(), rtol, 0);
          EXPECT_TRUE(close) << target->name << ": " << close.description;
        }
      }
    }
  }

  IrContext context_;
};

TEST_F(KernelTest, CopiesAndAdds) {
  Expect(R"(program {
  builtin.func() {name = "k"} ({
    ^(%x: v_tensor<[3, 5], f32>, %y: v_tensor<[5], f32>):
    %o = loop.alloc() : () -> tensor<[3, 5], f32>
    loop.for() {extent = 3, parallel = true} ({
      ^(%i: v_tensor<[], i64>):
      loop.for() {extent = 5} ({
        ^(%j: v_tensor<[], i64>):
        %a = loop.load(%x, none, %i, %j) : (v_tensor<[3, 5], f32>, none, v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], f32>
        %b = loop.load(%y, none, %j) : (v_tensor<[5], f32>, none, v_tensor<[], i64>) -> v_tensor<[], f32>
        %c = nn.add(%a, %b) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], f32>
        %d = loop.store_(%o, %c, none, %i, %j) : (tensor<[3, 5], f32>, v_tensor<[], f32>, none, v_tensor<[], i64>, v_tensor<[], i64>) -> tensor<[3, 5], f32>
        cf.yield()
      })
      cf.yield()
    })
    %v = builtin.to_vtensor(%o) : (tensor<[3, 5], f32>) -> v_tensor<[3, 5], f32>
    builtin.return(%v) : (v_tensor<[3, 5], f32>) -> ()
  })
  %x = nn.feed() {name = "x"} : () -> v_tensor<[3, 5], f32>
  %y = nn.feed() {name = "y"} : () -> v_tensor<[5], f32>
  %z = builtin.call(%x, %y) {callee = "k"} : (v_tensor<[3, 5], f32>, v_tensor<[5], f32>) -> v_tensor<[3, 5], f32>
  nn.fetch(%z) {name = "z"} : (v_tensor<[3, 5], f32>) -> ()
})");
}

// 1 without a team, and within a parallel loop.
TEST_F(KernelTest, NumberOfThreads) {
  Program program = ParseProgram(context_, R"(program {
  builtin.func() {name = "k"} ({
    ^(%x: v_tensor<[2], i64>):
    %o = loop.alloc() : () -> tensor<[2], i64>
    %0 = loop.index() {expr = dim<0>} : () -> v_tensor<[], i64>
    %n = loop.num_threads() : () -> v_tensor<[], i64>
    %a = loop.store_(%o, %n, none, %0) : (tensor<[2], i64>, v_tensor<[], i64>, none, v_tensor<[], i64>) -> tensor<[2], i64>
    loop.for() {extent = 1, parallel = true} ({
      ^(%i: v_tensor<[], i64>):
      %1 = loop.index(%i) {expr = dim<d0 + 1>} : (v_tensor<[], i64>) -> v_tensor<[], i64>
      %m = loop.num_threads() : () -> v_tensor<[], i64>
      %b = loop.store_(%o, %m, none, %1) : (tensor<[2], i64>, v_tensor<[], i64>, none, v_tensor<[], i64>) -> tensor<[2], i64>
      cf.yield()
    })
    %v = builtin.to_vtensor(%o) : (tensor<[2], i64>) -> v_tensor<[2], i64>
    builtin.return(%v) : (v_tensor<[2], i64>) -> ()
  })
})");
  const CompiledKernel kernel(FirstFunction(program)->region(0).front(), Target::Host());
  const Tensor zeros = Tensor::Of<int64_t>({2}, {0, 0});
  const auto counts = [&](KernelTeam* team) {
    return ToInt64s(kernel.Call({zeros}, {zeros}, team)[0]);
  };
  runtime::WorkerTeam team(3);
  const Budget unlimited({});
  runtime::StoppableTeam stoppable(&unlimited, &team), alone(&unlimited, nullptr);
  EXPECT_EQ(counts(nullptr), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(counts(&team), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(counts(&stoppable), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(counts(&alone), (std::vector<int64_t>{1, 1}));
}

TEST_F(KernelTest, VectorsWithLiveLanesAndSymbolicExtents) {
  Expect(R"(program {
  builtin.func() {name = "k"} ({
    ^(%x: v_tensor<[N, 11], f32>):
    %n = loop.dim(%x) {axis = 0} : (v_tensor<[N, 11], f32>) -> v_tensor<[], i64>
    %e = builtin.constant() {value = tensor<[], i64> [11]} : () -> v_tensor<[], i64>
    %o = loop.alloc(%n, %e) : (v_tensor<[], i64>, v_tensor<[], i64>) -> tensor<[N, 11], f32>
    loop.for(%n) {parallel = true} ({
      ^(%i: v_tensor<[], i64>):
      loop.for() {extent = 3} ({
        ^(%j: v_tensor<[], i64>):
        %at = loop.index(%j) {expr = dim<4 * d0>} : (v_tensor<[], i64>) -> v_tensor<[], i64>
        %live = loop.index(%j) {expr = dim<min(4, 11 - 4 * d0)>} : (v_tensor<[], i64>) -> v_tensor<[], i64>
        %a = loop.load(%x, %live, %i, %at) {lanes = 4} : (v_tensor<[N, 11], f32>, v_tensor<[], i64>, v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[4], f32>
        %b = nn.relu(%a) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
        %d = loop.store_(%o, %b, %live, %i, %at) : (tensor<[N, 11], f32>, v_tensor<[4], f32>, v_tensor<[], i64>, v_tensor<[], i64>, v_tensor<[], i64>) -> tensor<[N, 11], f32>
        cf.yield()
      })
      cf.yield()
    }) : (v_tensor<[], i64>) -> ()
    %v = builtin.to_vtensor(%o) : (tensor<[N, 11], f32>) -> v_tensor<[N, 11], f32>
    builtin.return(%v) : (v_tensor<[N, 11], f32>) -> ()
  })
  %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 11], f32>
  %z = builtin.call(%x) {callee = "k"} : (v_tensor<[N, 11], f32>) -> v_tensor<[N, 11], f32>
  nn.fetch(%z) {name = "z"} : (v_tensor<[N, 11], f32>) -> ()
})");
}

// The order of the additions is part of what the operation means.
TEST_F(KernelTest, ReducesVectors) {
  for (const auto& [element, kind] :
       std::vector<std::pair<std::string, std::string>>{{"f32", "add"},
                                                        {"f32", "mul"},
                                                        {"f64", "add"},
                                                        {"f32", "max"},
                                                        {"i32", "min"},
                                                        {"i64", "add"},
                                                        {"f16", "add"},
                                                        {"u8", "max"},
                                                        {"bool", "and"},
                                                        {"bool", "or"}}) {
    for (const int lanes : {1, 2, 8, 16, 32}) {
      const std::string row = StrCat("v_tensor<[3, ", lanes, "], ", element, ">"),
                        vector = StrCat("v_tensor<[", lanes, "], ", element, ">"),
                        scalar = StrCat("v_tensor<[], ", element, ">"),
                        memory = StrCat("tensor<[3], ", element, ">");
      Expect(StrCat("program {\n builtin.func() {name = \"k\"} ({\n ^(%x: ", row,
                    "):\n %o = loop.alloc() : () -> ", memory,
                    "\n loop.for() {extent = 3} ({\n ^(%i: v_tensor<[], i64>):\n"
                    " %z = loop.index() {expr = dim<0>} : () -> v_tensor<[], i64>\n"
                    " %a = loop.load(%x, none, %i, %z) {lanes = ",
                    lanes, "} : (", row, ", none, v_tensor<[], i64>, v_tensor<[], i64>) -> ",
                    vector, "\n %b = loop.reduce(%a) {kind = \"", kind, "\"} : (", vector, ") -> ",
                    scalar, "\n %d = loop.store_(%o, %b, none, %i) : (", memory, ", ", scalar,
                    ", none, v_tensor<[], i64>) -> ", memory,
                    "\n cf.yield()\n })\n %v = builtin.to_vtensor(%o) : (", memory, ") -> v_",
                    memory, "\n builtin.return(%v) : (v_", memory,
                    ") -> ()\n })\n %x = nn.feed() {name = \"x\"} : () -> ", row,
                    "\n %z = builtin.call(%x) {callee = \"k\"} : (", row, ") -> v_", memory,
                    "\n nn.fetch(%z) {name = \"z\"} : (v_", memory, ") -> ()\n}\n"));
    }
  }
}

// A function of %x and %i (i64 scalars of 0 .. n-1) that writes results %r0, %r1, ... of `body` one
// row after another: `rows` rows of type `row`.
std::string RowsOf(const std::string& argument, const std::string& body, int rows, int64_t lanes,
                   const std::string& element) {
  const std::string o = StrCat("[", rows, ", ", lanes, "], ", element, ">");
  const std::string i64 = "v_tensor<[], i64>";
  std::string text =
      StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: ", argument, "):\n");
  text += StrCat("%o = loop.alloc() : () -> tensor<", o, "\n");
  for (int i = 0; i < 6; ++i) {
    text += StrCat("%c", i, " = builtin.constant() {value = tensor<[], i64> [", i, "]} : () -> ",
                   i64, "\n");
  }
  text += body;
  for (int i = 0; i < rows; ++i) {
    text += StrCat("%i", i, " = builtin.constant() {value = tensor<[], i64> [", i, "]} : () -> ",
                   i64, "\n%s", i, " = loop.store_(%o, %r", i, ", none, %i", i, ", %c0) : (tensor<",
                   o, ", v_tensor<[", lanes, "], ", element, ">, none, ", i64, ", ", i64,
                   ") -> tensor<", o, "\n");
  }
  return StrCat(text, "%v = builtin.to_vtensor(%o) : (tensor<", o, ") -> v_tensor<", o,
                "\nbuiltin.return(%v) : (v_tensor<", o,
                ") -> ()\n})\n%x = nn.feed() {name = \"x\"} "
                ": () -> ",
                argument, "\n%z = builtin.call(%x) {callee = \"k\"} : (", argument,
                ") -> v_tensor<", o, "\nnn.fetch(%z) {name = \"z\"} : (v_tensor<", o, ") -> ()\n}");
}

constexpr const char* kI64 = "v_tensor<[], i64>";

TEST_F(KernelTest, TurnsSquareTiles) {
  for (const char* element : {"f32", "f64", "i8", "f16", "bool"}) {
    for (const int n : {1, 2, 4, 8, 16, 32}) {
      const std::string x = StrCat("v_tensor<[", n, ", ", n, "], ", element, ">");
      const std::string row = StrCat("v_tensor<[", n, "], ", element, ">");
      std::string body, rows, types, results;
      for (int i = 0; i < n; ++i) {
        body +=
            StrCat("%at", i, " = builtin.constant() {value = tensor<[], i64> [", i, "]} : () -> ",
                   kI64, "\n%l", i, " = loop.load(%x, none, %at", i, ", %c0) {lanes = ", n, "} : (",
                   x, ", none, ", kI64, ", ", kI64, ") -> ", row, "\n");
        const char* comma = i == 0 ? "" : ", ";
        rows += StrCat(comma, "%l", i);
        results += StrCat(comma, "%r", i);
        types += StrCat(comma, row);
      }
      body += StrCat(results, " = loop.transpose(", rows, ") : (", types, ") -> ",
                     n == 1 ? types : StrCat("(", types, ")"), "\n");
      SCOPED_TRACE(StrCat(n, " of ", element));
      Expect(RowsOf(x, body, n, n, element));
    }
  }
}

TEST_F(KernelTest, LanesTakeTurns) {
  for (const char* element : {"f32", "f64", "i8", "f16", "bool"}) {
    for (const int parts : {1, 2, 3}) {
      const std::string x = StrCat("v_tensor<[4, 8], ", element, ">");
      const std::string row = StrCat("v_tensor<[8], ", element, ">");
      const std::string wide = StrCat("v_tensor<[", 8 * parts, "], ", element, ">");
      std::string body, rows, types;
      for (int i = 0; i < parts; ++i) {
        body +=
            StrCat("%l", i, " = loop.load(%x, none, %c", i == 0 ? 0 : i + 1,
                   ", %c0) {lanes = 8} : (", x, ", none, ", kI64, ", ", kI64, ") -> ", row, "\n");
        rows += StrCat(i == 0 ? "" : ", ", "%l", i);
        types += StrCat(i == 0 ? "" : ", ", row);
      }
      for (const char* taken : {"each", "one"}) {
        if (taken == std::string("one")) {
          rows.clear();
          for (int i = 0; i < parts; ++i) rows += i == 0 ? "%l0" : ", %l0";
        }
        SCOPED_TRACE(StrCat(parts, " of ", element, " ", taken));
        Expect(RowsOf(
            x, StrCat(body, "%r0 = loop.interleave(", rows, ") : (", types, ") -> ", wide, "\n"), 1,
            8 * parts, element));
      }
    }
  }
}

// %z: sums that products are added to.
std::string Sums(int64_t count) {
  std::string numbers;
  for (int64_t i = 0; i < count; ++i) numbers += StrCat(i == 0 ? "" : ", ", i * 1000 - 70);
  return StrCat("%z = builtin.constant() {value = tensor<[", count, "], i32> [", numbers,
                "]} : () -> v_tensor<[", count, "], i32>\n");
}

// One group for all lanes, and one for each; more lanes than a vector has.
TEST_F(KernelTest, GroupsOfBytesAreMultiplied) {
  const std::string x = "v_tensor<[4, 64], u8>", i8 = "i8", u8 = "u8";
  const auto vector = [](int64_t lanes, const std::string& element) {
    return StrCat("v_tensor<[", lanes, "], ", element, ">");
  };
  for (const int64_t sums : {1, 2, 4, 8, 16}) {
    for (const int64_t left : {int64_t{4}, 4 * sums}) {
      const std::string wide = vector(4 * sums, "u8"), groups = vector(left, "u8");
      const auto load = [&](const char* name, int row, int64_t lanes) {
        return StrCat("%", name, " = loop.load(%x, none, %c", row, ", %c0) {lanes = ", lanes,
                      "} : (", x, ", none, ", kI64, ", ", kI64, ") -> ", vector(lanes, "u8"), "\n");
      };
      SCOPED_TRACE(StrCat(left, " by ", 4 * sums));
      const std::string body =
          StrCat(load("l0", 0, left), load("l1", 2, 4 * sums), "%s = nn.cast(%l1) {to = i8} : (",
                 wide, ") -> ", vector(4 * sums, "i8"), "\n", Sums(sums),
                 "%r0 = loop.dot(%l0, %s, %z) : (", groups, ", ", vector(4 * sums, "i8"), ", ",
                 vector(sums, "i32"), ") -> ", vector(sums, "i32"), "\n");
      Expect(RowsOf(x, body, 1, sums, "i32"));
    }
  }
}

// The lowest numbers, whose products of a pair do not fit into the sum, as well.
TEST_F(KernelTest, PairsOfWordsAreMultiplied) {
  const std::string x = "v_tensor<[4, 64], i16>";
  const auto words = [](int64_t lanes) { return StrCat("v_tensor<[", lanes, "], i16>"); };
  for (const int64_t sums : {1, 2, 4, 8, 16}) {
    std::string lowest = "-32768";
    for (int64_t i = 1; i < 2 * sums; ++i) lowest += ", -32768";
    const std::string all = words(2 * sums), row = StrCat("v_tensor<[", sums, "], i32>");
    const std::string low = StrCat("%low = builtin.constant() {value = tensor<[", 2 * sums,
                                   "], i16> [", lowest, "]} : () -> ", all, "\n");
    const auto load = [&](const char* name, int at, int64_t lanes) {
      return StrCat("%", name, " = loop.load(%x, none, %c", at, ", %c0) {lanes = ", lanes, "} : (",
                    x, ", none, ", kI64, ", ", kI64, ") -> ", words(lanes), "\n");
    };
    for (const int64_t left : {int64_t{2}, 2 * sums}) {
      SCOPED_TRACE(StrCat(left, " by ", 2 * sums));
      const std::string types = StrCat(", ", row, ") -> ", row, "\n");
      const std::string body =
          StrCat(load("a", 0, left), load("b", 2, 2 * sums), Sums(sums), low,
                 "%r0 = loop.dot_pairs(%a, %b, %z) : (", words(left), ", ", all, types,
                 "%m = nn.mul(%low, %b) : (", all, ", ", all, ") -> ", all, "\n",
                 "%o1 = nn.bitwise_or(%m, %low) : (", all, ", ", all, ") -> ", all, "\n",
                 "%r1 = loop.dot_pairs(%o1, %low, %z) : (", all, ", ", all, types);
      Expect(RowsOf(x, body, 2, sums, "i32"));
    }
  }
}

TEST_F(KernelTest, LoadsAlongAxesInSteps) {
  const std::string x = "v_tensor<[40, 70], f32>", row = "v_tensor<[16], f32>";
  for (const char* where : {"stride = 2", "stride = 3", "stride = 4", "axis = 0",
                            "axis = 0, stride = 2", "axis = 1, stride = 1"}) {
    const std::string load = StrCat("%c3, %c5) {lanes = 16, ", where, "} : (", x, ", ");
    const std::string body = StrCat(
        "%r0 = loop.load(%x, none, ", load, "none, ", kI64, ", ", kI64, ") -> ", row,
        "\n%l = builtin.constant() {value = tensor<[], i64> [9]} : () -> ", kI64,
        "\n%r1 = loop.load(%x, %l, ", load, kI64, ", ", kI64, ", ", kI64, ") -> ", row,
        "\n%r2 = loop.load(%x, %c0, ", load, kI64, ", ", kI64, ", ", kI64, ") -> ", row, "\n");
    SCOPED_TRACE(where);
    Expect(RowsOf(x, body, 3, 16, "f32"));
  }
}

// The last element of the last row must not be passed, nor the first live one behind the end.
TEST_F(KernelTest, StridedLoadsEndWithTheMemory) {
  const std::string x = "v_tensor<[3, 31], f32>", row = "v_tensor<[16], f32>";
  Expect(RowsOf(x,
                StrCat("%r0 = loop.load(%x, none, %c2, %c0) {lanes = 16, stride = 2} : (", x,
                       ", none, ", kI64, ", ", kI64, ") -> ", row,
                       "\n%r1 = loop.load(%x, %c4, %c2, %c0) {lanes = 16, stride = 10} : (", x,
                       ", ", kI64, ", ", kI64, ", ", kI64, ") -> ", row, "\n"),
                2, 16, "f32"));
}

TEST_F(KernelTest, Gathers) {
  for (const char* index : {"i32", "i64"}) {
    for (const char* element : {"f32", "f64", "i8", "i64", "bf16", "bool"}) {
      const std::string x = StrCat("v_tensor<[5, 9], ", element, ">");
      const std::string row = StrCat("v_tensor<[8], ", element, ">");
      const std::string at = StrCat("v_tensor<[8], ", index, ">");
      SCOPED_TRACE(StrCat(element, " by ", index));
      Expect(RowsOf(x,
                    StrCat("%a = builtin.constant() {value = tensor<[8], ", index,
                           "> [4, 0, 1, 1, 3, 2, 4, 0]} : () -> ", at,
                           "\n%b = builtin.constant() {value = tensor<[8], ", index,
                           "> [8, 0, 5, 5, 1, 7, 0, 2]} : () -> ", at,
                           "\n%r0 = loop.gather(%x, none, %a, %b)", " : (", x, ", none, ", at, ", ",
                           at, ") -> ", row, "\n%r1 = loop.gather(%x, %c3, %c2, %b) : (", x, ", ",
                           kI64, ", ", kI64, ", ", at, ") -> ", row, "\n"),
                    2, 8, element));
    }
  }
}

TEST_F(KernelTest, StoresAlongAxesInSteps) {
  const std::string x = "v_tensor<[1, 16], f32>", m = "tensor<[16, 16], f32>";
  const std::string row = "v_tensor<[16], f32>", half = "v_tensor<[8], f32>";
  for (const char* where : {"stride = 2", "axis = 0", "axis = 0, stride = 2"}) {
    for (const std::string live : {"none", "%c3"}) {
      std::string body = StrCat(
          "%q = loop.load(%x, none, %c0, %c0) {lanes = 16} : (", x, ", none, ", kI64, ", ", kI64,
          ") -> ", row, "\n%h = loop.load(%x, none, %c0, %c4) {lanes = 8} : (", x, ", none, ", kI64,
          ", ", kI64, ") -> ", half, "\n%m = loop.alloc() : () -> ", m, "\n");
      for (int i = 0; i < 16; ++i) {  // all of it is written first
        body += StrCat("%a", i, " = builtin.constant() {value = tensor<[], i64> [", i,
                       "]} : () -> ", kI64, "\n%m", i, " = loop.store_(%m, %q, none, %a", i,
                       ", %c0) : (", m, ", ", row, ", none, ", kI64, ", ", kI64, ") -> ", m, "\n");
      }
      body +=
          StrCat("%n = loop.store_(%m, %h, ", live, ", %c1, %c1) {", where, "} : (", m, ", ", half,
                 ", ", live == "none" ? "none" : kI64, ", ", kI64, ", ", kI64, ") -> ", m, "\n");
      for (int i = 0; i < 16; ++i) {
        body += StrCat("%r", i, " = loop.load(%m, none, %a", i, ", %c0) {lanes = 16} : (", m,
                       ", none, ", kI64, ", ", kI64, ") -> ", row, "\n");
      }
      SCOPED_TRACE(StrCat(where, " ", live));
      Expect(RowsOf(x, body, 16, 16, "f32"));
    }
  }
}

TEST_F(KernelTest, PrefetchesAnywhere) {
  const std::string x = "v_tensor<[1, 8], f32>";
  Expect(RowsOf(x,
                StrCat("loop.prefetch(%x, %c5, %c5) : (", x, ", ", kI64, ", ", kI64,
                       ") -> ()\n%r0 = loop.load(%x, none, %c0, %c0) {lanes = 8} : (", x,
                       ", none, ", kI64, ", ", kI64, ") -> v_tensor<[8], f32>\n"),
                1, 8, "f32"));
}

}  // namespace
}  // namespace lathe::codegen
