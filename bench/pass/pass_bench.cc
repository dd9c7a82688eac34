// Time of pattern matching as the graph grows:
//   bench_pass [matches]
// Prints, for a tenth of the matches and for all of them, the seconds that a detector of the FC
// pattern of seed 2 and the rewriting rule fc_fuse take, and the growth; 10 is linear.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "lathe/dialect/all.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/pass/pattern_detector.h"

namespace {

using namespace lathe;  // NOLINT: a program of its own
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// x, then `count` times x = x w + b, with one w and one b for all.
Program Layers(IrContext& context, int count) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  const auto feed = [&](const char* name, const Shape& shape) {
    const Type type = VTensorType::Get(context, SymShape::FromConstants(shape), ElementType::kF32);
    const NamedAttribute attribute = b.Named("name", b.Attr(std::string_view(name)));
    return b.Create("nn.feed", {}, {&attribute, 1}, {&type, 1})->result(0);
  };
  Value x = feed("x", {4, 4});
  const Value w = feed("w", {4, 4}), bias = feed("b", {4});
  for (int i = 0; i < count; ++i) {
    x = b.Create("nn.matmul", std::vector<Value>{x, w})->result(0);
    x = b.Create("nn.add", std::vector<Value>{x, bias})->result(0);
  }
  const NamedAttribute attribute = b.Named("name", b.Attr(std::string_view("y")));
  b.Create("nn.fetch", {&x, 1}, {&attribute, 1});
  return program;
}

double DetectorSeconds(IrContext& context, int count) {
  Program program = Layers(context, count);
  Graph graph(program);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  auto* mul = pattern->NewNode("mul")->assert_is_op("nn.matmul")->AsIntermediate();
  auto* add = pattern->NewNode("elementwise_add")->assert_is_op("nn.add")->AsIntermediate();
  auto* out = pattern->NewNode("mul_out")->assert_is_op_output("nn.matmul")->AsIntermediate();
  auto* w = pattern->NewNode("w")->assert_is_op_input("nn.matmul", "y")->AsInput();
  mul->LinksFrom({w});
  out->LinksFrom({mul})->LinksTo({add});
  const auto start = Clock::now();
  const int found = detector(&graph, [](const GraphPatternDetector::subgraph_t&, Graph*) {});
  const double seconds = SecondsSince(start);
  if (found != count) std::printf("the detector found %d of %d\n", found, count);
  return seconds;
}

double RuleSeconds(IrContext& context, int count) {
  Program program = Layers(context, count);
  PassManager manager;
  manager.Add("fc_fuse");
  const auto start = Clock::now();
  manager.Run(program);
  return SecondsSince(start);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 50000;
  IrContext context;
  LoadAllDialects(context);
  const auto report = [&](const char* name, double (*seconds)(IrContext&, int)) {
    const double tenth = seconds(context, count / 10), all = seconds(context, count);
    std::printf("%-9s %6d matches %8.4f s   %6d matches %8.4f s   growth %.1f\n", name, count / 10,
                tenth, count, all, all / tenth);
  };
  report("detector", DetectorSeconds);
  report("rule", RuleSeconds);
  return 0;
}
