#include "lathe/lower/split_function.h"

#include "src/driver/pack_arguments.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

class SplitFunctionTest : public LowerTest {
 protected:
  std::vector<Operation*> Split(Program& program, Operation* function) {
    const FunctionCalls calls(program);
    return SplitFunction(function, calls.Of(function), MachineOf(Target::Host()));
  }

  static std::string OperationsOf(const Operation* function) {
    std::string text;
    for (const Operation& op : *function->region(0).front()) text += StrCat(op.name(), " ");
    return text;
  }
};

// What has no loops stands between what has.
TEST_F(SplitFunctionTest, CutsAroundWhatIsNotLowered) {
  const std::string m = "v_tensor<[3, 3], f32>", s = "v_tensor<[], f32>";
  Program program = ParseProgram(
      context_,
      ProgramOf({{m, s},
                 StrCat("%c = builtin.constant() {value = tensor<[], f32> [2.0]} : () -> ", s,
                        "\n%x = nn.mul(%a, %c) : (", m, ", ", s, ") -> ", m,
                        "\n%y = nn.add(%x, %b) : (", m, ", ", s, ") -> ", m,
                        "\n%d = nn.dropout(%y) : (", m, ") -> ", m, "\n%z = nn.mul(%d, %c) : (", m,
                        ", ", s, ") -> ", m, "\n%r = nn.sub(%z, %b) : (", m, ", ", s, ") -> ", m),
                 m}),
      {.file_locations = false});
  const NamedValues inputs = Inputs(program);
  const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
  Operation* function = codegen::FirstFunction(program);
  ASSERT_FALSE(LowerFunction(function, MachineOf(Target::Host())).done);

  const std::vector<Operation*> pieces = Split(program, function);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(OperationsOf(pieces[0]), "builtin.constant nn.mul nn.add builtin.return ");
  EXPECT_EQ(OperationsOf(pieces[1]), "builtin.constant nn.dropout nn.mul nn.sub builtin.return ");
  VerifyOrThrow(program);
  EXPECT_TRUE(LowerFunction(pieces[0], MachineOf(Target::Host())).done);
  ASSERT_FALSE(LowerFunction(pieces[1], MachineOf(Target::Host())).done);

  const std::vector<Operation*> rest = Split(program, pieces[1]);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(OperationsOf(rest[0]), "nn.dropout builtin.return ");
  EXPECT_TRUE(LowerFunction(rest[1], MachineOf(Target::Host())).done);
  EXPECT_TRUE(Split(program, rest[0]).empty());
  VerifyOrThrow(program);
  EXPECT_EQ(Interpreter(program).Run(inputs)[0].second.tensor(), wanted);
}

// A reduction computes what it reads; what is computed of it stands behind it.
TEST_F(SplitFunctionTest, ReductionsKeepWhatTheyRead) {
  const std::string m = "v_tensor<[N, 3], f32>", s = "v_tensor<[], f32>";
  const std::string reduce = " {keepdims = false} : (" + m + ") -> " + s;
  Program program =
      ParseProgram(context_,
                   ProgramOf({{m},
                              "%x = nn.abs(%a) : (" + m + ") -> " + m +        //
                                  "\n%l = nn.reduce_min(%x)" + reduce +        //
                                  "\n%y = nn.sin(%a) : (" + m + ") -> " + m +  //
                                  "\n%h = nn.reduce_max(%y)" + reduce +        //
                                  "\n%d = nn.sub(%h, %l) : (" + s + ", " + s + ") -> " + s +
                                  "\n%r = nn.mul(%a, %d) : (" + m + ", " + s + ") -> " + m,
                              m}),
                   {.file_locations = false});
  Operation* function = codegen::FirstFunction(program);
  const std::vector<Operation*> pieces = Split(program, function);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(OperationsOf(pieces[0]), "nn.abs nn.reduce_min builtin.return ");
  EXPECT_EQ(OperationsOf(pieces[1]), "nn.sin nn.reduce_max nn.sub nn.mul builtin.return ");
  VerifyOrThrow(program);
  const std::vector<Operation*> rest = Split(program, pieces[1]);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(OperationsOf(rest[0]), "nn.sin nn.reduce_max builtin.return ");
  EXPECT_EQ(OperationsOf(rest[1]), "nn.sub nn.mul builtin.return ");
  VerifyOrThrow(program);
  EXPECT_TRUE(LowerFunction(rest[0], MachineOf(Target::Host())).done);
  EXPECT_EQ(Split(program, rest[1]).size(), 2U);  // each by itself
}

// What is read beside a result of another reduction stays before that reader.
TEST_F(SplitFunctionTest, ReadersKeepTheirOrder) {
  const std::string m = "v_tensor<[N, 3], f32>", s = "v_tensor<[], f32>";
  const std::string reduce = " {keepdims = false} : (" + m + ") -> " + s;
  Program program =
      ParseProgram(context_,
                   ProgramOf({{m},
                              "%l = nn.reduce_min(%a)" + reduce +              //
                                  "\n%x = nn.abs(%a) : (" + m + ") -> " + m +  //
                                  "\n%y = nn.add(%x, %l) : (" + m + ", " + s + ") -> " + m +
                                  "\n%h = nn.reduce_max(%y)" + reduce +
                                  "\n%r = nn.mul(%a, %h) : (" + m + ", " + s + ") -> " + m,
                              m}),
                   {.file_locations = false});
  Operation* function = codegen::FirstFunction(program);
  const std::vector<Operation*> pieces = Split(program, function);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(OperationsOf(pieces[0]), "nn.reduce_min nn.abs nn.add builtin.return ");
  EXPECT_EQ(OperationsOf(pieces[1]), "nn.reduce_max nn.mul builtin.return ");
  VerifyOrThrow(program);
}

}  // namespace
}  // namespace lathe::lower
