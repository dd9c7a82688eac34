// Fits a line by gradient descent. The network, its gradient and the update are one symbol.

#include <cstdio>
#include <iostream>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/frontend/symbol.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"

using lathe::Symbol;
using lathe::Tensor;

int main() {
  lathe::IrContext context;
  lathe::LoadAllDialects(context);

  const Symbol x = Symbol::CreateVariable(context, "x", {{"__shape__", "[N, 1]"}});
  const Symbol target = Symbol::CreateVariable(context, "target", {{"__shape__", "[N, 1]"}});
  const Symbol w = Symbol::CreateVariable(context, "w");
  const Symbol b = Symbol::CreateVariable(context, "b");

  const Symbol dense = Symbol::CreateFunctor(context, "nn.gemm");
  const Symbol y = dense({x, w, b}, {}, "fc");
  const Symbol error = y - target;
  const Symbol mean = Symbol::CreateFunctor(context, "nn.reduce_mean", {{"keepdims", "false"}});
  const Symbol loss = mean({error * error}, {}, "loss");

  const Symbol gemm =
      Symbol::CreateFunctor(context, "nn.gemm", {{"transA", "true"}, {"use_c", "false"}});
  const Symbol w_step = Assign(w, w - gemm({x, error}) * 0.05);
  const Symbol b_step = Assign(b, b - mean({error}) * 0.1);
  const Symbol step = Symbol::CreateGroup({loss, w_step, b_step});

  std::cout << "inputs:";
  for (const std::string& name : step.ListInputNames()) std::cout << ' ' << name;
  std::cout << "\nstates:";
  for (const std::string& name : step.ListInputNames(Symbol::kAuxiliaryStates)) {
    std::cout << ' ' << name;
  }
  std::cout << "\n\n";

  const Tensor zero = Tensor::Of<float>({1, 1}, std::vector<float>{0});
  lathe::Program program = step.ToProgram({.parameters = {{"w", zero}, {"b", zero.Reshaped({1})}}});
  std::cout << lathe::Print(program) << '\n';

  // y = 2 x - 1
  const Tensor xs = Tensor::Of<float>({4, 1}, std::vector<float>{-1, 0, 1, 2});
  const Tensor ys = Tensor::Of<float>({4, 1}, std::vector<float>{-3, -1, 1, 3});
  lathe::Interpreter interpreter(program);
  for (int i = 0; i <= 200; ++i) {
    const lathe::NamedValues out = interpreter.Run({{"x", xs}, {"target", ys}});
    if (i % 100 == 0) std::printf("loss %.4f\n", out[0].second.tensor().data<float>()[0]);
  }
  for (const char* name : {"w", "b"}) {
    std::printf("%s = %.3f\n", name, program.parameters().Find(name)->data.data<float>()[0]);
  }
}
