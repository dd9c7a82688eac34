#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/pass.h"
#include "lathe/support/file.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

constexpr const char* kMarkedNodes = "__graphviz__marked_node__";
constexpr const char* kProgram = R"(program {
  %0 = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %1 = nn.relu(%0) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%1) {name = "y"} : (v_tensor<[2], f32>) -> ()
})";

std::string Line(const std::string& text, const std::string& start) {
  const size_t at = text.find("  " + start + " [");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(GraphViz, HighlightsMarkedNodesOnce) {
  IrContext context;
  LoadAllDialects(context);
  Program program = ParseProgram(context, kProgram, {.file_locations = false});
  Graph graph(program);
  Operation* relu = graph.TopologySortOperations()[1];
  graph.Set(kMarkedNodes, std::vector<Node>{Node(relu), Node(relu->operand(0))});

  const auto pass = PassRegistry::Global().Make("graph_viz");
  const TempFolder folder;
  const std::string path = folder / "marked.dot";
  pass->SetOption("path", path);
  pass->Apply(graph);
  const std::string marked = ReadFile(path);
  EXPECT_NE(Line(marked, "op1").find("penwidth=3"), std::string::npos) << marked;
  EXPECT_NE(Line(marked, "var0").find("penwidth=3"), std::string::npos) << marked;
  EXPECT_EQ(Line(marked, "op0").find("penwidth"), std::string::npos) << marked;
  EXPECT_EQ(Line(marked, "var1").find("penwidth"), std::string::npos) << marked;

  EXPECT_FALSE(graph.Has(kMarkedNodes));
  pass->Apply(graph);
  EXPECT_EQ(ReadFile(path).find("penwidth"), std::string::npos);
  EXPECT_FALSE(pass->changed());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lathe
