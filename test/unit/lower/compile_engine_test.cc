#include "lathe/lower/compile_engine.h"

#include <barrier>
#include <filesystem>
#include <latch>
#include <thread>
#include <utility>

#include "lathe/support/file.h"
#include "test/unit/lower/fusion_util.h"

namespace lathe::testing {
namespace {

const TargetKeys kOne{"one", {"cpu"}}, kTwo{"two", {"cpu"}};

class Engine : public NetTest {
 protected:
  // A group of the given text: arguments, operations and yield.
  const Region& Group(std::string_view head, std::string_view body, std::string_view signature) {
    std::string text = "program {\n";
    const std::string types(signature.substr(1, signature.find(')') - 1));
    std::string operands;
    size_t count = 0;
    for (size_t at = 0; !types.empty() && at != std::string::npos; ++count) {
      const size_t end = types.find(">", at) + 1;
      text += StrCat("%i", count, " = nn.feed() {name = \"i", count, "\"} : () -> ",
                     types.substr(at, end - at), "\n");
      operands += StrCat(count == 0 ? "" : ", ", "%i", count);
      at = end == types.size() ? std::string::npos : end + 2;
    }
    text += StrCat("%r = builtin.group(", operands, ") ({\n", head, "\n", body,
                   "\n}) : ", signature, "\n}");
    programs_.push_back(std::make_unique<Program>(ParseProgram(context_, text)));
    return programs_.back()->block()->back()->region(0);
  }

  const Region& Relu(std::string_view shape, std::string_view note = "") {
    const std::string t = StrCat("v_tensor<", shape, ", f32>");
    return Group(StrCat("^(%a: ", t, "):"),
                 StrCat("%b = nn.relu(%a) ", note, " : (", t, ") -> ", t, "\ncf.yield(%b) : (", t,
                        ") -> ()"),
                 StrCat("(", t, ") -> ", t));
  }

  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(Engine, EqualFunctionsAreOne) {
  CompileEngine engine;
  const auto first = engine.Compile(Relu("[2]"), kOne);
  EXPECT_EQ(engine.Compile(Relu("[2]", "{note = 1}"), kOne), first);
  EXPECT_NE(engine.Compile(Relu("[3]"), kOne), first);
  const auto other = engine.Compile(Relu("[2]"), kTwo);
  EXPECT_NE(other, first);
  EXPECT_EQ(other->name, first->name);
  EXPECT_EQ(engine.hits(), 1U);
  EXPECT_EQ(engine.misses(), 3U);
  EXPECT_EQ(engine.Items().size(), 3U);
  EXPECT_EQ(first->name.substr(0, 11), "fused_relu_");
  engine.Clear();
  EXPECT_NE(engine.Compile(Relu("[2]"), kOne), first);
}

TEST_F(Engine, ArgumentsPassedStraightToTheResult) {
  const std::string t = "v_tensor<[2], f32>";
  CompileEngine engine;
  const auto make = [&](std::string_view results) {
    std::string text =
        StrCat("program {\n%x = nn.feed() {name = \"x\"} : () -> ", t,
               "\n%r, %s = builtin.group(%x, %x) ({\n^(%a: ", t, ", %b: ", t,
               "):\n%c = nn.relu(%a) : (", t, ") -> ", t, "\ncf.yield(", results, ") : (", t, ", ",
               t, ") -> ()\n}) : (", t, ", ", t, ") -> (", t, ", ", t, ")\n}");
    programs_.push_back(std::make_unique<Program>(ParseProgram(context_, text)));
    VerifyOrThrow(*programs_.back());
    return engine.Compile(programs_.back()->block()->back()->region(0), kOne);
  };
  const auto argument = make("%c, %b");
  const auto twice = make("%c, %c");
  const auto swapped = make("%b, %c");
  EXPECT_NE(argument, twice);
  EXPECT_NE(argument, swapped);
  EXPECT_EQ(make("%c, %c"), twice);
  EXPECT_EQ(make("%c, %b"), argument);
}

TEST_F(Engine, ConstantsOfOtherTypesDiffer) {
  CompileEngine engine;
  const auto reshaped = [&](std::string_view element) {
    const std::string t = StrCat("v_tensor<[2], ", element, ">");
    return engine.Compile(
        Group(StrCat("^(%a: ", t, "):"),
              StrCat("%k = builtin.constant() {value = tensor<[], ", element,
                     "> [3]} : () -> v_tensor<[], ", element, ">\n%b = nn.add(%a, %k) : (", t,
                     ", v_tensor<[], ", element, ">) -> ", t, "\ncf.yield(%b) : (", t, ") -> ()"),
              StrCat("(", t, ") -> ", t)),
        kOne);
  };
  EXPECT_NE(reshaped("i32"), reshaped("i64"));
  EXPECT_EQ(reshaped("i32"), reshaped("i32"));
}

// A thousand functions, half of them twins of others, from one thread and from eight.
TEST_F(Engine, ThreadsMakeTheSameNamesAndBytes) {
  std::vector<const Region*> functions;
  for (int i = 0; i < 1000; ++i) functions.push_back(&Relu(StrCat("[", i / 2 + 1, "]")));
  std::atomic<int> lowered = 0;
  const auto lower = [&](const Region& function, const TargetKeys& target, std::string_view name) {
    ++lowered;
    return StrCat(target.name, " ", name, " ", function.front()->argument(0).type().ToString());
  };
  const auto texts = [](const CompileEngine& engine) {
    std::vector<std::string> result;
    for (const auto& item : engine.Items()) result.push_back(StrCat(item->name, ":", item->bytes));
    return result;
  };
  CompileEngine serial(lower), parallel(lower);
  for (const Region* f : functions) (void)serial.Compile(*f, kOne);
  EXPECT_EQ(lowered, 500);
  std::vector<std::thread> threads;
  std::barrier start(8);
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (size_t i = 0; i < functions.size(); ++i) {
        (void)parallel.Compile(*functions[(i * (2 * t + 1) + t) % functions.size()], kOne);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lowered, 1000);  // each once
  EXPECT_EQ(texts(parallel), texts(serial));
  EXPECT_EQ(parallel.misses(), 500U);
  EXPECT_EQ(parallel.hits(), 7500U);
}

// Neither of two lowerings ends before both have begun.
TEST_F(Engine, DifferentFunctionsAreLoweredAtTheSameTime) {
  std::latch both(2);
  CompileEngine engine([&](const Region&, const TargetKeys&, std::string_view name) {
    both.arrive_and_wait();
    return std::string(name);
  });
  const Region &a = Relu("[2]"), &b = Relu("[3]");
  std::thread other([&] { (void)engine.Compile(a, kOne); });
  (void)engine.Compile(b, kOne);
  other.join();
  EXPECT_EQ(engine.Items().size(), 2U);
}

TEST_F(Engine, FailuresAreToldAndTriedAgain) {
  int calls = 0;
  CompileEngine engine([&](const Region&, const TargetKeys&, std::string_view) -> std::string {
    if (++calls == 1) throw Error(ErrorCode::kUnsupported, "lower/test", "not today");
    return "done";
  });
  const Region& f = Relu("[2]");
  EXPECT_EQ(ErrorOf([&] { (void)engine.Compile(f, kOne); }).id(), "lower/test");
  EXPECT_EQ(engine.Items().size(), 0U);
  EXPECT_EQ(engine.Compile(f, kOne)->bytes, "done");
  EXPECT_EQ(engine.Compile(f, kOne)->bytes, "done");
  EXPECT_EQ(calls, 2);
}

// ---- on disk ----

class EngineOnDisk : public Engine {
 protected:
  EngineOnDisk() {
    std::string name = ::testing::TempDir() + "lathe_cache_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~EngineOnDisk() override { std::filesystem::remove_all(folder_); }

  // What a process gives for relu on two elements: the bytes, and whether it had to lower.
  std::pair<std::string, bool> Ask(const TargetKeys& target, std::string version = "1") {
    bool lowered = false;
    CompileEngine engine(
        [&](const Region&, const TargetKeys& t, std::string_view) {
          lowered = true;
          return "code for " + t.name;
        },
        std::make_shared<DiskCache>(folder_, std::move(version)));
    const auto made = engine.Compile(Relu("[2]"), target);
    EXPECT_EQ(engine.disk_hits(), lowered ? 0U : 1U);
    return {made->bytes, lowered};
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& f : std::filesystem::directory_iterator(folder_)) files.push_back(f.path());
    return files;
  }

  std::string folder_;
};

TEST_F(EngineOnDisk, FoundAfterARestart) {
  EXPECT_EQ(Ask(kOne), std::pair(std::string("code for one"), true));
  EXPECT_EQ(Ask(kOne), std::pair(std::string("code for one"), false));
  EXPECT_EQ(Ask(kTwo), std::pair(std::string("code for two"), true));
  EXPECT_EQ(Ask(kOne, "2"), std::pair(std::string("code for one"), true));
  EXPECT_EQ(Ask(kOne), std::pair(std::string("code for one"), false));
}

TEST_F(EngineOnDisk, DamagedFilesCountAsAbsent) {
  (void)Ask(kOne);
  ASSERT_EQ(Files().size(), 1U);
  const std::string path = Files()[0], good = ReadFile(path);
  for (size_t size = 0; size < good.size(); size += 7) {
    WriteFile(path, good.substr(0, size));
    EXPECT_EQ(Ask(kOne), std::pair(std::string("code for one"), true)) << size;
  }
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 16);
    WriteFile(path, bad);
    EXPECT_EQ(Ask(kOne), std::pair(std::string("code for one"), true)) << at;
  }
  WriteFile(path, good + "x");
  EXPECT_TRUE(Ask(kOne).second);
  EXPECT_EQ(ReadFile(path), good);  // put right
}

// As when the hashes of two keys are equal: the file is of the other key.
TEST_F(EngineOnDisk, FilesOfOtherKeysAreNotTaken) {
  (void)Ask(kOne);
  const std::string first = Files()[0], content = ReadFile(first);
  (void)Ask(kTwo);
  for (const std::string& path : Files()) WriteFile(path, content);
  EXPECT_EQ(Ask(kTwo), std::pair(std::string("code for two"), true));
}

TEST_F(EngineOnDisk, FolderThatCanNotBeWritten) {
  WriteFile(folder_ + "/file", "");
  const DiskCache cache(folder_ + "/file/below", "1");
  EXPECT_FALSE(cache.Store("key", "bytes"));
  EXPECT_EQ(cache.Load("key"), std::nullopt);
}

TEST_F(Engine, LongNamesAreCut) {
  Net net(context_);
  Value x = net.X({2});
  for (int i = 0; i < 40; ++i) x = net.Op("tanh", {x});
  net.Output(x);
  RunPasses(net.program(), "graph_fuse_partition");
  const Operation* group = net.program().fetches()[0]->operand(0).defining_op();
  const std::string name = KernelName(group->region(0), 0x1234);
  EXPECT_EQ(name.size(), 80U + 17U);
  EXPECT_EQ(name.substr(80), "_0000000000001234");
}

// ---- the pass ----

size_t Count(const Program& program, std::string_view name) {
  size_t count = 0;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    count += op->name() == name ? 1 : 0;
  }
  return count;
}

TEST_F(Engine, LayersOfANetworkShareKernels) {
  Net net(context_);
  Value x = net.X({1, 4, 6, 6});
  for (int i = 0; i < 5; ++i) {
    x = net.Op("relu", {net.Op("add", {net.Conv(x, 3), net.X({4, 1, 1})})});
  }
  net.Output(x);
  const NamedValues inputs = RandomInputs(net.program(), 1);
  const NamedValues expected = Interpreter(net.program()).Run(inputs);
  RunPasses(net.program(), "graph_fuse_partition,graph_fuse_compile");
  EXPECT_EQ(Count(net.program(), "builtin.call"), 5U);
  EXPECT_EQ(Count(net.program(), "builtin.func"), 1U);
  EXPECT_EQ(Count(net.program(), "builtin.group"), 0U);
  EXPECT_EQ(Interpreter(net.program()).Run(inputs), expected);
  const std::string text = Print(net.program());
  EXPECT_EQ(Print(ParseProgram(context_, text, {.file_locations = false})), text);
  RunPasses(net.program(), "graph_fuse_partition,graph_fuse_compile");
  EXPECT_EQ(Print(net.program()), text);
}

TEST_F(Engine, SecondRunSharesNothingWithOtherNames) {
  Net net(context_);
  net.Output(net.Op("exp", {net.X({2})}));
  RunPasses(net.program(), "graph_fuse_partition");
  Program taken = net.program().Clone();
  RunPasses(taken, "graph_fuse_compile");
  const Operation* call = taken.fetches()[0]->operand(0).defining_op();
  const auto callee = call->attribute("callee").cast<StrAttribute>();
  // A function of the user's with that very name stays what it is.
  Builder b = Builder::AtEnd(net.program().block());
  const NamedAttribute name = b.Named("name", callee);
  Operation* function = b.Create("builtin.func", {}, {&name, 1}, {}, 1);
  Builder::AtEnd(function->region(0).AddBlock()).Create("builtin.return", {});
  RunPasses(net.program(), "graph_fuse_compile");
  const Operation* now = net.program().fetches()[0]->operand(0).defining_op();
  EXPECT_EQ(now->attribute("callee").cast<StrAttribute>().value(), StrCat(callee.value(), "_1"));
}

}  // namespace
}  // namespace lathe::testing
