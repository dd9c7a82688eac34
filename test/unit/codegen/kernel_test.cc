#include "test/unit/codegen/kernel_util.h"

namespace lathe::codegen {
namespace {

class KernelTest : public testing::Test {
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
    const KernelSource source{"k", function->region(0).front()};
    for (const Target* target : RunnableTargets()) {
      const auto library = CodeGenerator::Get().Compile({&source, 1}, *target);
      runtime::WorkerTeam team(3);
      for (KernelTeam* t : {static_cast<KernelTeam*>(nullptr), static_cast<KernelTeam*>(&team)}) {
        const auto got = CallKernel(library->Find("k"), tensors, outputs, t);
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

}  // namespace
}  // namespace lathe::codegen
