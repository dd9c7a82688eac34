#include "lathe/lower/external.h"

#include "lathe/ir/functions.h"
#include "test/unit/lower/random_dag.h"

namespace lathe::testing {
namespace {

std::string RefuseAllBut(const Operation* op, const std::set<std::string_view>& names) {
  return names.count(op->name()) != 0 ? "" : "it is another op";
}

const bool kRegistered = [] {
  ExternalCompilers::Global().Register(
      {"few",
       [](const Operation* op) {
         return RefuseAllBut(op, {"nn.add", "nn.sub", "nn.mul", "nn.relu", "nn.split"});
       },
       [](const Operation* function, const Program&) {
         return ExternalKernel{{}, {}, StrCat("code of ", FunctionTable::NameOf(function))};
       }});
  ExternalCompilers::Global().Register(
      {"most", [](const Operation* op) { return op->name() == "nn.tanh" ? "no tanh" : ""; },
       [](const Operation*, const Program&) { return ExternalKernel(); }});
  return true;
}();

class External : public NetTest {
 protected:
  // The pass; the program gives the same bits.
  void Partition(Net& net, std::string_view options = "") {
    const NamedValues inputs = RandomInputs(net.program(), 1);
    const NamedValues expected = Interpreter(net.program()).Run(inputs);
    RunPasses(net.program(), StrCat("partition_external{compiler=few", options, "}"));
    EXPECT_EQ(Interpreter(net.program()).Run(inputs), expected);
  }

  // "name(arguments): ops -> results" of each function for an external compiler.
  static std::string Functions(const Program& program) {
    const FunctionTable functions(program);
    std::string text;
    for (const Operation* f : functions.functions()) {
      const Block* body = FunctionTable::Body(f);
      text += StrCat(text.empty() ? "" : " | ", FunctionTable::NameOf(f), "(",
                     body->num_arguments(), "):");
      for (const Operation& op : *body) {
        if (!op.HasTrait<Terminator>())
          text += StrCat(" ", op.name().substr(op.name().find('.') + 1));
      }
      text += StrCat(" -> ", FunctionTable::Return(f)->num_operands());
    }
    return text;
  }

  Net net_{context_};
};

TEST_F(External, DiamondWithAnotherBranchIsTwoRegions) {
  const Value a = net_.Op("add", {net_.X({4}), net_.X({4})});
  const Value s = net_.Op("relu", {a}), u = net_.Op("exp", {a});
  net_.Output(net_.Op("mul", {s, u}));
  Partition(net_);
  EXPECT_EQ(Functions(net_.program()),
            "lathe_few_main_0(2): add relu -> 2 | lathe_few_main_1(2): mul -> 1");
}

TEST_F(External, SeveralResultsOfOneRegion) {
  Operation* parts =
      net_.Many("split", {net_.X({6})}, {net_.Int("axis", 0), net_.Int("num_outputs", 3)}, 3);
  for (size_t i = 0; i < 3; ++i) net_.Output(net_.Op("relu", {parts->result(i)}));
  Partition(net_);
  EXPECT_EQ(Functions(net_.program()), "lathe_few_main_0(1): split relu relu relu -> 3");
}

// Read within the region, twice outside, and an output: given once.
TEST_F(External, UsedInsideAndOutsideIsGivenOnce) {
  const Value a = net_.Op("add", {net_.X({4}), net_.X({4})});
  net_.Output(net_.Op("mul", {a, net_.Op("relu", {a})}));
  net_.Output(a);
  net_.Output(a);
  net_.Output(net_.Op("exp", {a}));
  Partition(net_);
  EXPECT_EQ(Functions(net_.program()), "lathe_few_main_0(2): add relu mul -> 2");
}

TEST_F(External, ArgumentsAreTakenOnce) {
  const Value x = net_.X({4}), e = net_.Op("exp", {x});
  net_.Output(net_.Op("add", {net_.Op("mul", {e, e}), net_.Op("sub", {e, x})}));
  Partition(net_);
  EXPECT_EQ(Functions(net_.program()), "lathe_few_main_0(2): mul sub add -> 1");
}

// What only a later region reads belongs to that one.
TEST_F(External, EarlyPartsJoinTheRegionThatReadsThem) {
  const Value early = net_.Op("relu", {net_.Op("mul", {net_.X({4}), net_.X({4})})});
  const Value late = net_.Op("exp", {net_.Op("add", {net_.X({4}), net_.X({4})})});
  net_.Output(net_.Op("sub", {early, late}));
  Partition(net_);
  EXPECT_EQ(Functions(net_.program()),
            "lathe_few_main_0(3): mul relu sub -> 1 | lathe_few_main_1(2): add -> 1");
}

TEST_F(External, ConstantsAndWeightsAreBound) {
  const Value k = net_.Constant(RandomTensor(ElementType::kF32, {4}, 1));
  Program& program = net_.program();
  Builder& b = net_.builder();
  program.parameters().Insert(StrAttribute::Get(context_, "w"),
                              {RandomTensor(ElementType::kF32, {4}, 2), false});
  program.parameters().Insert(StrAttribute::Get(context_, "m"),
                              {RandomTensor(ElementType::kF32, {4}, 3), true});
  const auto read = [&](std::string_view name) {
    const Type type = VTensorType::Get(context_, SymShape{4}, ElementType::kF32);
    const NamedAttribute attribute = b.Named("name", b.Attr(name));
    return b.Create("builtin.get_parameter", {}, {&attribute, 1}, {&type, 1})->result(0);
  };
  const Value scaled = net_.Op("mul", {net_.X({4}), read("w")});
  net_.Output(net_.Op("add", {net_.Op("add", {scaled, k}), read("m")}));
  Partition(net_);
  // The mutable one is an argument.
  EXPECT_EQ(Functions(program), "lathe_few_main_0(2): get_parameter constant mul add add -> 1");
}

TEST_F(External, NamesCountAndKeepClearOfOthers) {
  net_.Output(net_.Op("add", {net_.Op("exp", {net_.Op("relu", {net_.X({4})})}), net_.X({4})}));
  Builder& b = net_.builder();
  const NamedAttribute name = b.Named("name", b.Attr(std::string_view("my_few_main_0")));
  Operation* function = b.Create("builtin.func", {}, {&name, 1}, {}, 1);
  Builder::AtEnd(function->region(0).AddBlock()).Create("builtin.return", {});
  Partition(net_, ",prefix=my");
  EXPECT_EQ(Functions(net_.program()),
            "my_few_main_0(0): -> 0 | my_few_main_1(1): relu -> 1 | my_few_main_2(2): add -> 1");
}

TEST_F(External, SmallRegionsStay) {
  net_.Output(net_.Op("add", {net_.Op("exp", {net_.Op("relu", {net_.X({4})})}), net_.X({4})}));
  Partition(net_, ",min_ops=2");
  EXPECT_EQ(Functions(net_.program()), "");
}

TEST_F(External, MissingCompilerListsThoseThereAre) {
  net_.Output(net_.Op("relu", {net_.X({4})}));
  const Error error =
      ErrorOf([&] { RunPasses(net_.program(), "partition_external{compiler=fwe}"); });
  EXPECT_EQ(error.id(), "lower/no-compiler");
  EXPECT_NE(error.Render().find("registered: few, most"), std::string::npos) << error.Render();
  EXPECT_NE(error.Render().find("did you mean 'few'?"), std::string::npos) << error.Render();
}

TEST_F(External, RegistryRefusesDuplicatesAndSaysWhenEmpty) {
  ExternalCompilers compilers;
  EXPECT_NE(ErrorOf([&] { (void)compilers.Find("x"); }).Render().find("none is registered"),
            std::string::npos);
  compilers.Register({"x", {}, {}});
  EXPECT_EQ(ErrorOf([&] { compilers.Register({"x", {}, {}}); }).id(), "lower/duplicate-compiler");
  EXPECT_EQ(compilers.names(), std::vector<std::string>{"x"});
}

TEST_F(External, FunctionsGoThroughTheirCompiler) {
  net_.Output(net_.Op("add", {net_.Op("exp", {net_.Op("relu", {net_.X({4})})}), net_.X({4})}));
  Partition(net_);
  const std::vector<ExternalModule> modules = CompileExternalFunctions(net_.program());
  ASSERT_EQ(modules.size(), 2U);
  EXPECT_EQ(modules[1].symbol, "lathe_few_main_1");
  EXPECT_EQ(modules[1].compiler, "few");
  EXPECT_EQ(modules[1].kernel.steps, "code of lathe_few_main_1");
  const ExternalCompilers none;
  EXPECT_EQ(ErrorOf([&] { (void)CompileExternalFunctions(net_.program(), none); }).id(),
            "lower/no-compiler");
}

// A parameter that is read, set, and read again; what is computed between must not mix the reads.
TEST_F(External, EffectsKeepTheirOrder) {
  const std::string text = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
  %a = nn.add(%x, %w) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  builtin.set_parameter(%a) {name = "w"} : (v_tensor<[2], f32>) -> ()
  %v = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
  %b = nn.mul(%a, %v) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%b) {name = "y"} : (v_tensor<[2], f32>) -> ()
  nn.fetch(%x) {name = "same"} : (v_tensor<[2], f32>) -> ()
})";
  Program program = ParseProgram(context_, text);
  const Tensor w = Tensor::Of<float>({2}, std::vector<float>{1, 2});
  program.parameters().Insert(StrAttribute::Get(context_, "w"), {w, false});
  program.RefreshMutability();
  const NamedValues inputs = {{"x", Tensor::Of<float>({2}, std::vector<float>{3, 4})}};
  Program before = program.Clone();
  const NamedValues expected = Interpreter(before).Run(inputs);
  RunPasses(program, "partition_external{compiler=few}");
  EXPECT_EQ(Functions(program), "lathe_few_main_0(2): add -> 1 | lathe_few_main_1(2): mul -> 1");
  EXPECT_EQ(Interpreter(program).Run(inputs), expected);
}

TEST_F(External, RegionsOfBranchesAndFunctions) {
  const std::string text = R"(program {
  %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %e = nn.relu(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %r = cf.if(%c) ({
    %a = nn.add(%e, %x) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    cf.yield(%a) : (v_tensor<[2], f32>) -> ()
  }, {
    %a = builtin.call(%e) {callee = "f"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    cf.yield(%a) : (v_tensor<[2], f32>) -> ()
  }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
  %s = nn.mul(%r, %e) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%s) {name = "y"} : (v_tensor<[2], f32>) -> ()
  builtin.func() {name = "f"} ({ ^(%i: v_tensor<[2], f32>):
    %o = nn.sub(%i, %i) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.return(%o) : (v_tensor<[2], f32>) -> ()
  })
})";
  for (const bool which : {true, false}) {
    Program program = ParseProgram(context_, text);
    const NamedValues inputs = {{"c", Tensor::Scalar(which)},
                                {"x", Tensor::Of<float>({2}, std::vector<float>{-3, 4})}};
    const NamedValues expected = Interpreter(program).Run(inputs);
    RunPasses(program, "partition_external{compiler=few}");
    EXPECT_EQ(Functions(program),
              "f(1): call -> 1 | lathe_few_main_0(1): relu -> 1 | lathe_few_main_1(2): mul -> 1 | "
              "lathe_few_main_2(2): add -> 1 | lathe_few_f_0(1): sub -> 1");
    EXPECT_EQ(Interpreter(program).Run(inputs), expected);
    const std::string once = Print(program);
    RunPasses(program, "partition_external{compiler=few}");
    EXPECT_EQ(Print(program), once);
  }
}

std::set<std::string> RegionNames(const Program& program,
                                  const std::function<bool(const Operation*)>& supported) {
  std::set<std::string> result;
  for (const auto& region : FindRegions(program, program.block(), supported)) {
    std::string names;
    for (const Operation* op : region) {
      names += StrCat(op->name(), "@", op->location().ToString(*op->context()), " ");
    }
    result.insert(names);
  }
  return result;
}

TEST_F(External, RandomProgramsAreCutIntoConvexRegions) {
  size_t regions = 0, ops = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Net net = RandomDag(context_, seed).Grow(40);
    const std::string compiler = seed % 2 == 0 ? "few" : "most";
    const ExternalCompiler& by = ExternalCompilers::Global().Find(compiler);
    const auto supported = [&](const Operation* op) {
      return IsKernelOp(op) && by.refuse(op).empty();
    };
    const std::set<std::string> names = RegionNames(net.program(), supported);
    for (const auto& region : FindRegions(net.program(), net.program().block(), supported)) {
      ++regions;
      ops += region.size();
      EXPECT_TRUE(IsConvex({.ops = region}));
    }
    RandomStream random(seed);
    for (int i = 0; i < 3; ++i) {
      Program other = net.program().Clone();
      Shuffle(other.block(), random);
      EXPECT_EQ(RegionNames(other, supported), names);
    }
    const NamedValues inputs = RandomInputs(net.program(), seed);
    const NamedValues expected = Interpreter(net.program()).Run(inputs);
    RunPasses(net.program(), StrCat("partition_external{compiler=", compiler, "}"));
    EXPECT_EQ(Interpreter(net.program()).Run(inputs), expected);
  }
  EXPECT_GT(ops, 2 * regions);
}

}  // namespace
}  // namespace lathe::testing
