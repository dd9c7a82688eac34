// Programs that several ranks run together: threads of this process.

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "lathe/driver/executable.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/communicator.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

using testing::ValuesOf;

struct OpCase {
  const char* name;
  const char* op;  // of %x, of 12 elements; N is the number of ranks, R the last rank
  bool has_gradient = true;
};

constexpr OpCase kCases[] = {
    {"all_reduce", "%y = dist.all_reduce(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>"},
    {"mean",
     "%y = dist.all_reduce(%x) {nranks = N, reduction = \"mean\"} : (v_tensor<[12], T>) -> "
     "v_tensor<O, T>"},
    {"max",
     "%y = dist.all_reduce(%x) {nranks = N, reduction = \"max\"} : (v_tensor<[12], T>) -> "
     "v_tensor<O, T>",
     false},
    {"places",
     "%y, %z = dist.all_reduce(%x, %x) {nranks = N} : (v_tensor<[12], T>, v_tensor<[12], T>) -> "
     "(v_tensor<O, T>, v_tensor<O, T>)"},
    {"bucket",
     "%h = nn.mul(%x, %x) : (v_tensor<[12], T>, v_tensor<[12], T>) -> v_tensor<[12], T>\n"
     "%y, %z = dist.all_reduce_bucket(%x, %h) {nranks = N} : (v_tensor<[12], T>, v_tensor<[12], "
     "T>) -> (v_tensor<O, T>, v_tensor<O, T>)"},
    {"reduce",
     "%y = dist.reduce(%x) {nranks = N, root = R} : (v_tensor<[12], T>) -> v_tensor<O, T>"},
    {"reduce_mean",
     "%y = dist.reduce(%x) {nranks = N, reduction = \"mean\"} : (v_tensor<[12], T>) -> "
     "v_tensor<O, T>"},
    {"broadcast",
     "%y = dist.broadcast(%x) {nranks = N, root = R} : (v_tensor<[12], T>) -> v_tensor<O, T>"},
    {"all_gather", "%y = dist.all_gather(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<G, T>"},
    {"reduce_scatter",
     "%y = dist.reduce_scatter(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<P, T>"},
    {"scatter_mean",
     "%y = dist.reduce_scatter(%x) {nranks = N, reduction = \"mean\"} : (v_tensor<[12], T>) -> "
     "v_tensor<P, T>"},
    {"all_to_all", "%y = dist.all_to_all(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>"},
    {"start_all_reduce",
     "%s = dist.start_all_reduce(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>\n"
     "%y = dist.wait(%s) {nranks = N} : (v_tensor<O, T>) -> v_tensor<O, T>",
     false},
    {"start_two",
     "%h = nn.mul(%x, %x) : (v_tensor<[12], T>, v_tensor<[12], T>) -> v_tensor<[12], T>\n"
     "%s = dist.start_all_reduce(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>\n"
     "%t = dist.start_all_reduce(%h) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>\n"
     "%q = dist.all_reduce(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>\n"
     "%a = dist.wait(%t) {nranks = N} : (v_tensor<O, T>) -> v_tensor<O, T>\n"
     "%b = dist.wait(%s) {nranks = N} : (v_tensor<O, T>) -> v_tensor<O, T>\n"
     "%c = nn.sub(%a, %b) : (v_tensor<O, T>, v_tensor<O, T>) -> v_tensor<O, T>\n"
     "%y = nn.mul(%c, %q) : (v_tensor<O, T>, v_tensor<O, T>) -> v_tensor<O, T>",
     false},
    {"start_reduce_scatter",
     "%s = dist.start_reduce_scatter(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>\n"
     "%y = dist.wait(%s) {nranks = N, part = true} : (v_tensor<O, T>) -> v_tensor<P, T>",
     false},
    {"start_all_gather",
     "%s = dist.start_all_gather(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<G, T>\n"
     "%y = dist.wait(%s) {nranks = N} : (v_tensor<G, T>) -> v_tensor<G, T>",
     false},
    {"shard", "%y = dist.shard(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<P, T>", false},
    {"barrier", "%y = dist.barrier(%x) {nranks = N} : (v_tensor<[12], T>) -> v_tensor<O, T>"},
};

std::string Filled(std::string text, int ranks, const char* element) {
  const auto fill = [&](std::string_view what, const std::string& with) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
      text.replace(at, what.size(), with);
    }
  };
  fill("= N", StrCat("= ", ranks));
  fill("= R", StrCat("= ", ranks - 1));
  fill("<O", "<[12]");
  fill("<G", StrCat("<[", 12 * ranks, "]"));
  fill("<P", StrCat("<[", 12 / ranks, "]"));
  fill(" T>", StrCat(" ", element, ">"));
  return text;
}

// Of %y.
std::string ResultType(const OpCase& c, int ranks, const char* element) {
  const char* type = std::strstr(c.op, "<G,")   ? "v_tensor<G, T>"
                     : std::strstr(c.op, "<P,") ? "v_tensor<P, T>"
                                                : "v_tensor<O, T>";
  return Filled(type, ranks, element);
}

// Gives y.
std::string BodyOf(const OpCase& c, int ranks) {
  return StrCat("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[12], f32>\n",
                Filled(c.op, ranks, "f32"), "\nnn.fetch(%y) {name = \"y\"} : (",
                ResultType(c, ranks, "f32"), ") -> ()");
}

Program ParseBody(IrContext& context, const std::string& body) {
  return ParseProgram(context, StrCat("program {\n", body, "\n}"));
}

double InputOf(int rank, int64_t i) { return 0.1 * static_cast<double>(i * i % 7) - 0.3 * rank; }

template <class T>
Tensor Input(int rank, int bumped_rank = -1, int64_t bumped = 0, double by = 0) {
  std::vector<T> values;
  for (int64_t i = 0; i < 12; ++i) {
    const double bump = rank == bumped_rank && i == bumped ? by : 0;
    values.push_back(static_cast<T>(InputOf(rank, i) + bump));
  }
  return Tensor::Of<T>({12}, values);
}

// ---- compiled and interpreted ----

TEST(Ranks, CompiledCollectivesGiveTheBitsOfTheInterpreter) {
  for (const int size : {1, 2, 3, 4}) {
    for (const OpCase& c : kCases) {
      SCOPED_TRACE(StrCat(c.name, " of ", size));
      RunAsThreadRanks(size, [&](Communicator& ranks) {
        IrContext context;
        LoadAllDialects(context);
        Program p = ParseBody(context, BodyOf(c, size));
        const NamedValues inputs = {{"x", Input<float>(ranks.rank())}};
        const NamedValues expected = Interpreter(p).Run(inputs);
        const Executable executable(p, {.threads = 1});
        ASSERT_TRUE(executable.obstacles().empty()) << executable.obstacles()[0];
        ASSERT_TRUE(executable.interpreted().empty());
        for (int run = 0; run < 2; ++run) {
          EXPECT_EQ(ValuesOf<float>(*Find(executable.Run(inputs), "y")),
                    ValuesOf<float>(*Find(expected, "y")));
        }
      });
    }
  }
}

TEST(Ranks, CollectivesComputeWhatTheySay) {
  const auto run = [](const char* name, int rank) {
    std::vector<float> values;
    const OpCase* found = nullptr;
    for (const OpCase& c : kCases) found = std::string_view(c.name) == name ? &c : found;
    std::mutex mutex;
    RunAsThreadRanks(2, [&](Communicator& ranks) {
      IrContext context;
      LoadAllDialects(context);
      Program p = ParseBody(context, BodyOf(*found, 2));
      std::vector<float> x;
      for (int i = 0; i < 12; ++i) x.push_back(static_cast<float>(100 * ranks.rank() + i));
      const NamedValues out = Interpreter(p).Run({{"x", testing::Vec<float>(x)}});
      const std::lock_guard lock(mutex);
      if (ranks.rank() == rank) values = ValuesOf<float>(*Find(out, "y"));
    });
    return values;
  };
  using V = std::vector<float>;
  EXPECT_EQ(run("all_reduce", 0)[3], 106);
  EXPECT_EQ(run("mean", 1)[3], 53);
  EXPECT_EQ(run("max", 0)[3], 103);
  EXPECT_EQ(run("places", 0)[3], 212);
  EXPECT_EQ(run("bucket", 1)[3], 106);
  EXPECT_EQ(run("reduce", 0)[3], 0);
  EXPECT_EQ(run("reduce", 1)[3], 106);
  EXPECT_EQ(run("broadcast", 0)[3], 103);
  EXPECT_EQ(run("all_gather", 0).size(), 24u);
  EXPECT_EQ(run("all_gather", 1)[12], 100);
  EXPECT_EQ(run("reduce_scatter", 1), (V{112, 114, 116, 118, 120, 122}));
  EXPECT_EQ(run("all_to_all", 0), (V{0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(run("barrier", 1)[3], 103);
  EXPECT_EQ(run("start_all_reduce", 0)[3], 106);
  EXPECT_EQ(run("start_reduce_scatter", 1), (V{112, 114, 116, 118, 120, 122}));
  EXPECT_EQ(run("start_all_gather", 1)[12], 100);
  EXPECT_EQ(run("shard", 1), (V{106, 107, 108, 109, 110, 111}));
}

// ---- gradients ----

// The sum over ranks of the sum of y * (3 + rank + i % 5), and its gradient for %x of each rank.
struct LossAndGradients {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
};
LossAndGradients Differentiate(const OpCase& c, int size, int bumped_rank = -1, int64_t bumped = 0,
                               double by = 0) {
  LossAndGradients all;
  all.gradients.resize(static_cast<size_t>(size));
  std::mutex mutex;
  RunAsThreadRanks(size, [&](Communicator& ranks) {
    IrContext context;
    LoadAllDialects(context);
    const std::string t = ResultType(c, size, "f64");
    Program p = ParseBody(
        context,
        StrCat("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[12], f64>\n",
               "%w = nn.feed() {name = \"w\"} : () -> ", t, "\n", Filled(c.op, size, "f64"),
               "\n%m = nn.mul(%y, %w) : (", t, ", ", t, ") -> ", t,
               "\n%s = nn.reduce_sum(%m) {keepdims = false} : (", t,
               ") -> v_tensor<[], f64>\nnn.fetch(%s) {name = \"loss\"} : (v_tensor<[], f64>) -> "
               "()"));
    const auto backward = PassRegistry::Global().Make("append_backward");
    backward->SetOption("parameters", "[x]");
    backward->SetOption("loss", "[loss]");
    backward->Apply(p);
    const auto type = p.feeds()[1]->result(0).type().cast<AnyTensorType>();
    const int64_t n = NumElements(*type.shape().Constants());
    std::vector<double> w;
    for (int64_t i = 0; i < n; ++i) w.push_back(static_cast<double>(3 + ranks.rank() + i % 5));
    const NamedValues out =
        Interpreter(p).Run({{"x", Input<double>(ranks.rank(), bumped_rank, bumped, by)},
                            {"w", testing::Vec<double>(w)}});
    const std::lock_guard lock(mutex);
    all.loss += ValuesOf<double>(*Find(out, "loss"))[0];
    all.gradients[static_cast<size_t>(ranks.rank())] = ValuesOf<double>(*Find(out, "x@GRAD"));
  });
  return all;
}

TEST(Ranks, GradientsAreThoseOfFiniteDifferences) {
  constexpr double kStep = 1e-3;
  for (const int size : {2, 3}) {
    for (const OpCase& c : kCases) {
      if (!c.has_gradient) continue;
      SCOPED_TRACE(StrCat(c.name, " of ", size));
      const LossAndGradients at = Differentiate(c, size);
      for (int r = 0; r < size; ++r) {
        for (const int64_t i : {0, 5, 11}) {
          const double up = Differentiate(c, size, r, i, kStep).loss;
          const double down = Differentiate(c, size, r, i, -kStep).loss;
          EXPECT_NEAR(at.gradients[static_cast<size_t>(r)][static_cast<size_t>(i)],
                      (up - down) / (2 * kStep), 1e-6)
              << "rank " << r << ", element " << i;
        }
      }
    }
  }
  EXPECT_THROW(Differentiate(kCases[2], 2), Error);
}

// ---- messages from rank to rank ----

// The first sends to the second, which sends a result back.
TEST(Ranks, SendAndReceive) {
  for (const bool compiled : {false, true}) {
    std::vector<float> got;
    RunAsThreadRanks(
        2,
        [&](Communicator& ranks) {
          IrContext context;
          LoadAllDialects(context);
          const char* kFirst = R"(
        %x = nn.feed() {name = "x"} : () -> v_tensor<[12], f32>
        %s = dist.send(%x) {to = 1, nranks = 2} : (v_tensor<[12], f32>) -> v_tensor<[12], f32>
        %r = dist.recv(%x) {from = 1, nranks = 2} : (v_tensor<[12], f32>) -> v_tensor<[12], f32>
        nn.fetch(%r) {name = "y"} : (v_tensor<[12], f32>) -> ())";
          const char* kSecond = R"(
        %x = nn.feed() {name = "x"} : () -> v_tensor<[12], f32>
        %r = dist.recv(%x) {from = 0, nranks = 2} : (v_tensor<[12], f32>) -> v_tensor<[12], f32>
        %m = nn.add(%r, %x) : (v_tensor<[12], f32>, v_tensor<[12], f32>) -> v_tensor<[12], f32>
        %s = dist.send(%m) {to = 0, nranks = 2} : (v_tensor<[12], f32>) -> v_tensor<[12], f32>
        nn.fetch(%x) {name = "y"} : (v_tensor<[12], f32>) -> ())";
          Program p = ParseBody(context, ranks.rank() == 0 ? kFirst : kSecond);
          const NamedValues inputs = {{"x", Input<float>(ranks.rank())}};
          const NamedValues out =
              compiled ? Executable(p, {.threads = 1}).Run(inputs) : Interpreter(p).Run(inputs);
          if (ranks.rank() == 0) got = ValuesOf<float>(*Find(out, "y"));
        },
        20);
    const auto a = ValuesOf<float>(Input<float>(0)), b = ValuesOf<float>(Input<float>(1));
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(got[i], a[i] + b[i]);
  }
}

// ---- errors ----

TEST(Ranks, MistakesAreSaid) {
  const auto error = [](int size, const std::string& op, const std::string& second = "") {
    std::string id, message;
    try {
      RunAsThreadRanks(size, [&](Communicator& ranks) {
        IrContext context;
        LoadAllDialects(context);
        Program p = ParseBody(context, ranks.rank() == 1 && !second.empty() ? second : op);
        const Tensor x = Input<float>(0);
        (void)Interpreter(p).Run({{"x", x}});
      });
    } catch (const Error& e) {
      return StrCat(e.id(), ": ", e.message());
    }
    return std::string();
  };
  const auto program = [](const char* name, int ranks, const char* more, const char* out) {
    return StrCat("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[12], f32>\n%y = dist.", name,
                  "(%x) {nranks = ", ranks, more, "} : (v_tensor<[12], f32>) -> v_tensor<[", out,
                  "], f32>");
  };
  EXPECT_TRUE(error(2, program("all_reduce", 3, "", "12")).starts_with("run/ranks: "));
  EXPECT_TRUE(error(2, program("send", 2, ", to = 2", "12")).starts_with("verify/collective: "));
  EXPECT_TRUE(error(2, program("recv", 2, ", from = 5", "12")).starts_with("verify/collective: "));
  EXPECT_TRUE(error(5, program("reduce_scatter", 5, "", "2")).starts_with("shape/collective: "));
  EXPECT_TRUE(error(5, program("all_to_all", 5, "", "12")).starts_with("shape/collective: "));
  const std::string other =
      "%x = nn.feed() {name = \"x\"} : () -> v_tensor<[12], f32>\n%r = builtin.constant() {value = "
      "tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>\n%z = nn.cast(%x) {to = f64} : "
      "(v_tensor<[12], f32>) -> v_tensor<[12], f64>\n%y = dist.all_reduce(%z) {nranks = 2} : "
      "(v_tensor<[12], f64>) -> v_tensor<[12], f64>";
  EXPECT_TRUE(error(2, program("all_reduce", 2, "", "12"), other)
                  .starts_with("shape/collective: dist.all_reduce: rank 1 gives f64[12], rank 0"))
      << error(2, program("all_reduce", 2, "", "12"), other);
}

// A rank whose run ends between the start of a collective and its end.
TEST(Ranks, ARunThatFailsLeavesNothingBehind) {
  const std::string body =
      "%x = nn.feed() {name = \"x\"} : () -> v_tensor<[12], f32>\n"
      "%i = nn.feed() {name = \"i\"} : () -> v_tensor<[1], i64>\n"
      "%s = dist.start_all_reduce(%x) {nranks = 2} : (v_tensor<[12], f32>) -> v_tensor<[12], f32>\n"
      "%g = nn.gather(%x, %i) {axis = 0} : (v_tensor<[12], f32>, v_tensor<[1], i64>) -> "
      "v_tensor<[1], f32>\n"
      "%y = dist.wait(%s) {nranks = 2} : (v_tensor<[12], f32>) -> v_tensor<[12], f32>\n"
      "%z = nn.add(%y, %g) : (v_tensor<[12], f32>, v_tensor<[1], f32>) -> v_tensor<[12], f32>\n"
      "nn.fetch(%z) {name = \"z\"} : (v_tensor<[12], f32>) -> ()";
  std::mutex mutex;
  std::vector<std::string> ids(2);
  const auto run = [&](Communicator& ranks) {
    IrContext context;
    LoadAllDialects(context);
    Program p = ParseBody(context, body);
    const Executable executable(p, {.threads = 1});
    const int64_t index = ranks.rank() == 0 ? 99 : 1;
    try {
      executable.Run({{"x", Input<float>(ranks.rank())}, {"i", testing::Vec<int64_t>({index})}});
      executable.Run({{"x", Input<float>(ranks.rank())}, {"i", testing::Vec<int64_t>({index})}});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      ids[static_cast<size_t>(ranks.rank())] = error.id();
      ranks.Abort(error.message());
    }
  };
  RunAsThreadRanks(2, run, 30);
  EXPECT_NE(ids[0], "rank/failed");
  EXPECT_NE(ids[0], "");
  EXPECT_EQ(ids[1], "rank/failed");
}

TEST(Ranks, AProgramOfRanksIsNotSaved) {
  IrContext context;
  LoadAllDialects(context);
  const Program p = ParseBody(context, BodyOf(kCases[0], 2));
  const Executable executable(p, {.threads = 1});
  EXPECT_FALSE(executable.CanSave());
  try {
    executable.Save("unused.lx");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "save/collective");
  }
}

}  // namespace
}  // namespace lathe
