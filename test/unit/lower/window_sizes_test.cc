#include <cstring>
#include <random>

#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/builder.h"
#include "test/unit/lower/lower_util.h"

// Convolutions and pools compiled once for any batch, height and width: each run gives what a
// program for just these sizes gives, bit by bit, and what the interpreter gives. Accesses are
// checked.
namespace lathe::lower {
namespace {

constexpr int64_t kExtents[] = {0, 1, 2, 7, 15, 16, 17, 33, 57};

Tensor Random(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(random() % 2001) / 1000.0F - 1.0F);
  }
  return Tensor::Of<float>(shape, values);
}

// An operation over a picture, with weights if it has any, and a ReLU behind it.
struct WindowCase {
  std::string op = {};
  int64_t channels = 1;
  Shape weights = {};  // empty: none
  std::vector<std::pair<std::string, std::vector<int64_t>>> lists = {};
  int64_t group = 1;
  int64_t halvings = 0;  // of the picture before: extents are then no symbols
  std::string auto_pad = "NOTSET";
  int64_t rank = 2;
  std::vector<std::pair<std::string, std::string>> words = {};  // attributes
  std::vector<std::string> flags = {};                          // attributes that are true
  std::vector<float> scales = {};                               // of a resize
  bool any_channels = false;  // their number is known when the program runs
};

class WindowSizes : public LowerTest {
 protected:
  std::vector<int64_t> widths_{std::begin(kExtents), std::end(kExtents)};

  // x: the sizes of a picture, known or not.
  Program ProgramOf(const WindowCase& c, std::vector<Dim> x) {
    Program program(context_);
    Builder b = Builder::AtEnd(program.block());
    ShapeInferencer facts(&program.parameters());
    b.set_facts(&facts);
    const NamedAttribute name = b.Named("name", b.Attr(std::string("x")));
    const Type type = VTensorType::Get(context_, SymShape(std::move(x)), ElementType::kF32);
    Operation* feed = b.Create("nn.feed", {}, {&name, 1}, std::span<const Type>(&type, 1));
    facts.Visit(feed);
    Value v = feed->result(0);
    const std::vector<int64_t> twos(static_cast<size_t>(c.rank), 2);
    for (int64_t i = 0; i < c.halvings; ++i) {
      v = Create(b, "nn.max_pool", {v}, {{"kernel_shape", twos}, {"strides", twos}}, {});
    }
    std::vector<Value> operands{v};
    if (!c.weights.empty()) {
      operands.push_back(Constant(b, facts, Random(c.weights, 1)));
      const int64_t filters = c.op == "nn.conv" ? c.weights[0] : c.weights[1] * c.group;
      operands.push_back(Constant(b, facts, Random({filters}, 2)));
    }
    if (!c.scales.empty()) {
      operands.emplace_back();
      const auto count = static_cast<int64_t>(c.scales.size());
      operands.push_back(Constant(b, facts, Tensor::Of<float>({count}, c.scales)));
    }
    v = Create(b, c.op, operands, c.lists, c);
    v = Create(b, "nn.relu", {v}, {}, {});
    const NamedAttribute y = b.Named("name", b.Attr(std::string("y")));
    b.Create("nn.fetch", {&v, 1}, {&y, 1});
    return program;
  }

  static Value Constant(Builder& b, ShapeInferencer& facts, const Tensor& value) {
    const NamedAttribute named = b.Named("value", b.Attr(value));
    Operation* op = b.Create("builtin.constant", {}, {&named, 1});
    facts.Visit(op);
    return op->result(0);
  }

  Value Create(Builder& b, const std::string& op, const std::vector<Value>& operands,
               const std::vector<std::pair<std::string, std::vector<int64_t>>>& lists,
               const WindowCase& c) {
    std::vector<NamedAttribute> attributes;
    for (const auto& [name, values] : lists) attributes.push_back(b.Named(name, b.Attr(values)));
    if (c.group != 1) attributes.push_back(b.Named("group", b.Attr(c.group)));
    for (const auto& [name, word] : c.words) {
      if (op == c.op) attributes.push_back(b.Named(name, b.Attr(word)));
    }
    for (const std::string& flag : c.flags) {
      if (op == c.op) attributes.push_back(b.Named(flag, b.Attr(true)));
    }
    if (c.auto_pad != "NOTSET") attributes.push_back(b.Named("auto_pad", b.Attr(c.auto_pad)));
    return b.CreateInferred(context_.FindOp(op), operands, attributes, 1)->result(0);
  }

  std::vector<Shape> Sizes(const WindowCase& c) {
    std::mt19937 random(7);
    std::vector<Shape> sizes;
    for (const int64_t width : widths_) {
      for (int k = 0; k < 3; ++k) {
        Shape shape{static_cast<int64_t>(random() % 3), c.channels};
        if (c.any_channels) shape[1] = static_cast<int64_t>(random() % 20);
        for (int64_t a = 1; a < c.rank; ++a) {
          const int64_t most = c.rank > 2 ? 6 : static_cast<int64_t>(std::size(kExtents));
          shape.push_back(kExtents[random() % static_cast<uint32_t>(most)]);
        }
        shape.push_back(width);
        sizes.push_back(std::move(shape));
      }
    }
    return sizes;
  }

  void Expect(const WindowCase& c, const std::string& strategy) {
    SCOPED_TRACE(StrCat(c.op, " ", c.channels, " * ", SymShape::FromConstants(c.weights).ToString(),
                        " group ", c.group, " halvings ", c.halvings));
    std::vector<Dim> any{Dim::Symbol("N"), c.channels, Dim::Symbol("D"), Dim::Symbol("H"),
                         Dim::Symbol("W")};
    if (c.any_channels) any[1] = Dim::Symbol("C");
    any.erase(any.begin() + 2, any.begin() + 2 + (3 - c.rank));
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ProgramOf(c, any);
      // Sizes that are symbols refuse the kernels of the other levels, which have other bits.
      const CompileOptions options{
          .target = target->name,
          .precision = Precision::kStrict,
          .disabled = {"conv_transpose_as_conv", "conv_transpose_as_matmul"},
          .threads = 2,
          .check_accesses = true};
      const Executable executable(program, options);
      std::string strategies;
      for (const CompiledFunctionInfo& f : executable.functions()) strategies += f.strategy + " ";
      EXPECT_NE(strategies.find(strategy + " "), std::string::npos) << strategies;
      size_t number = 0;
      for (const Shape& shape : Sizes(c)) {
        ExpectSame(c, program, executable, options, shape, number++ % 2 == 1);
      }
    }
  }

  void ExpectSame(const WindowCase& c, Program& program, const Executable& executable,
                  const CompileOptions& options, const Shape& shape, bool exactly) {
    const std::string what = StrCat(options.target, " ", SymShape::FromConstants(shape).ToString());
    const NamedValues inputs{{"x", RtValue(Random(shape, 3))}};
    NamedValues wanted;
    try {
      wanted = Interpreter(program).Run(inputs);
    } catch (const Error&) {  // a window that does not fit
      EXPECT_THROW(executable.Run(inputs), Error) << what;
      return;
    }
    const Tensor got = executable.Run(inputs)[0].second.tensor();
    const Tensor& right = wanted[0].second.tensor();
    const Closeness close = AllClose(got, right, 1e-4, 1e-4);
    ASSERT_TRUE(close) << what << ": " << close.description;
    if (!exactly || got.num_elements() == 0) return;
    Program exact = ProgramOf(c, {shape.begin(), shape.end()});
    const Tensor same = Executable(exact, options).Run(inputs)[0].second.tensor();
    EXPECT_EQ(0, std::memcmp(got.raw(), same.raw(), static_cast<size_t>(got.num_elements()) * 4))
        << what << ": not the bits of the program for these sizes";
  }
};

TEST_F(WindowSizes, Dense) {
  Expect({"nn.conv", 5, {19, 5, 3, 3}, {{"pads", {1, 1, 1, 1}}}}, "conv");
  Expect({"nn.conv", 5, {19, 5, 3, 3}, {{"pads", {1, 1, 1, 1}}}, 1, 1}, "conv");
  Expect({"nn.conv", 20, {7, 20, 1, 1}, {}}, "conv");
}

TEST_F(WindowSizes, StridedAndDilated) {
  Expect({"nn.conv", 2, {17, 2, 2, 2}, {{"pads", {1, 0, 1, 1}}, {"strides", {2, 2}}}}, "conv");
  Expect({"nn.conv", 2, {6, 2, 2, 2}, {{"pads", {2, 1, 0, 3}}, {"dilations", {2, 1}}}, 1, 2},
         "conv");
  Expect({"nn.conv", 1, {6, 1, 3, 2}, {{"strides", {2, 3}}}, 1, 1, "SAME_UPPER"}, "conv");
  Expect({"nn.conv", 1, {6, 1, 3, 3}, {}, 1, 0, "SAME_LOWER"}, "conv");
}

// Rows shorter than a tile, of a few tiles, and of several blocks; all depth at once, or parts.
TEST_F(WindowSizes, FiltersInLanes) {
  const char* lanes = "conv_filter_lanes";
  const std::vector<int64_t> ones{1, 1, 1, 1};
  widths_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 23, 28, 29, 31, 56, 130, 259};
  Expect({"nn.conv", 7, {16, 7, 3, 3}, {{"pads", ones}}}, lanes);
  Expect({"nn.conv", 50, {32, 50, 3, 3}, {{"pads", ones}}, 1, 1}, lanes);
  Expect({"nn.conv", 67, {96, 67, 2, 3}, {{"pads", {0, 1, 1, 2}}, {"strides", {2, 1}}}}, lanes);
}

TEST_F(WindowSizes, FiltersInLanesStridedAndDilated) {
  const char* lanes = "conv_filter_lanes";
  Expect({"nn.conv", 3, {32, 3, 7, 7}, {{"pads", {3, 3, 3, 3}}, {"strides", {2, 2}}}}, lanes);
  Expect({"nn.conv", 40, {16, 40, 3, 3}, {{"pads", {2, 1, 0, 3}}, {"dilations", {2, 1}}}, 1, 2},
         lanes);
  Expect({"nn.conv", 24, {30, 24, 3, 2}, {{"strides", {2, 3}}}, 1, 1, "SAME_UPPER"}, lanes);
  Expect({"nn.conv", 24, {16, 24, 3, 3}, {}, 1, 0, "SAME_LOWER"}, lanes);
  Expect({"nn.conv", 64, {64, 32, 3, 3}, {{"strides", {1, 2}}}, 2}, lanes);
  widths_ = {1, 31, 33, 130, 530};
  Expect({"nn.conv", 3, {32, 3, 16, 16}, {{"strides", {16, 16}}}}, lanes);
}

// On small planes, places of the kernel lie in padding for every position.
TEST_F(WindowSizes, FiltersInLanesOnSmallPlanes) {
  const char* lanes = "conv_filter_lanes";
  widths_ = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> twos{2, 2, 2, 2};
  Expect({"nn.conv", 40, {16, 40, 5, 5}, {{"pads", twos}}}, lanes);
  Expect({"nn.conv", 24, {32, 24, 3, 4}, {{"pads", twos}, {"strides", {2, 3}}}}, lanes);
  Expect({"nn.conv", 24, {32, 24, 3, 3}, {{"strides", {2, 2}}}, 1, 1, "SAME_LOWER"}, lanes);
  Expect({"nn.conv", 24, {32, 24, 2, 2}, {{"pads", twos}, {"dilations", {4, 3}}}}, lanes);
  Expect({"nn.conv", 40, {64, 40, 7}, {{"pads", {3, 3}}}, 1, 0, "NOTSET", 1}, lanes);
}

TEST_F(WindowSizes, FiltersInLanesInOneAndThreeDims) {
  const char* lanes = "conv_filter_lanes";
  widths_ = {0, 1, 7, 8, 30, 57, 255, 258, 700};
  Expect({"nn.conv", 40, {64, 40, 5}, {{"pads", {2, 1}}, {"strides", {2}}}, 1, 1, "NOTSET", 1},
         lanes);
  widths_ = {1, 2, 7, 15, 33};
  Expect({"nn.conv", 30, {32, 30, 2, 3, 3}, {{"pads", {1, 1, 1, 0, 1, 1}}}, 1, 0, "NOTSET", 3},
         lanes);
}

// Places of the kernel that see nothing but padding are left out, whichever these are.
// The filters of a group fill no vectors.
TEST_F(WindowSizes, KernelsThatReachFar) {
  Expect({"nn.conv", 64, {10, 32, 3, 3}, {{"dilations", {6, 6}}}, 2, 0, "SAME_UPPER"}, "conv");
  Expect({"nn.conv", 66, {6, 33, 3, 3}, {{"pads", {12, 6, 12, 6}}, {"dilations", {12, 6}}}, 2},
         "conv");
  Expect({"nn.conv",
          64,
          {6, 32, 3, 3},
          {{"pads", {20, 3, 7, 9}}, {"dilations", {9, 5}}, {"strides", {2, 3}}},
          2,
          1},
         "conv");
  Expect({"nn.conv", 80, {6, 40, 12}, {{"pads", {6, 5}}}, 2, 0, "NOTSET", 1}, "conv");
  Expect({"nn.conv",
          64,
          {10, 32, 2, 5, 3},
          {{"pads", {1, 4, 1, 1, 4, 1}}, {"dilations", {1, 2, 1}}},
          2,
          0,
          "NOTSET",
          3},
         "conv");
}

TEST_F(WindowSizes, KernelsThatReachFarWithFiltersInLanes) {
  const char* lanes = "conv_filter_lanes";
  Expect({"nn.conv", 33, {16, 33, 3, 3}, {{"pads", {12, 6, 12, 6}}, {"dilations", {12, 6}}}},
         lanes);
  Expect({"nn.conv",
          32,
          {32, 32, 3, 3},
          {{"pads", {20, 3, 7, 9}}, {"dilations", {9, 5}}, {"strides", {2, 3}}},
          1,
          1},
         lanes);
  Expect({"nn.conv", 40, {32, 40, 12}, {{"pads", {6, 5}}}, 1, 0, "NOTSET", 1}, lanes);
  Expect({"nn.conv",
          32,
          {16, 32, 2, 5, 3},
          {{"pads", {1, 4, 1, 1, 4, 1}}, {"dilations", {1, 2, 1}}},
          1,
          0,
          "NOTSET",
          3},
         lanes);
  Expect({"nn.conv", 70, {32, 35, 3, 3}, {{"dilations", {2, 12}}}, 2, 0, "SAME_UPPER"}, lanes);
}

TEST_F(WindowSizes, OneAndThreeDims) {
  Expect({"nn.conv", 4, {9, 4, 3}, {{"pads", {1, 1}}}, 1, 1, "NOTSET", 1}, "conv");
  Expect({"nn.conv", 1, {5, 1, 2, 2, 2}, {{"pads", {1, 1, 1, 0, 1, 1}}}, 1, 0, "NOTSET", 3},
         "conv");
}

// Its bias is a constant of one element.
TEST_F(WindowSizes, OneFilter) {
  Expect({"nn.conv", 20, {1, 20, 1, 1}, {}}, "conv");
  Expect({"nn.conv", 1, {1, 1, 3, 3}, {{"pads", {1, 1, 1, 1}}}}, "conv");
  Expect({"nn.conv_transpose", 5, {5, 1, 2, 2}, {{"strides", {2, 2}}}}, "conv_transpose");
}

TEST_F(WindowSizes, Grouped) {
  const char* blocks = "conv_depthwise_blocks";
  Expect({"nn.conv", 5, {5, 1, 3, 3}, {{"pads", {1, 1, 1, 1}}}, 5}, blocks);
  Expect({"nn.conv", 6, {12, 3, 3, 3}, {{"pads", {0, 2, 1, 0}}, {"strides", {2, 2}}}, 2, 1},
         blocks);
  Expect({"nn.conv", 3, {3, 1, 5, 5}, {{"pads", {4, 4, 4, 4}}, {"dilations", {2, 2}}}, 3}, blocks);
  Expect({"nn.conv", 4, {20, 2, 2, 3}, {{"strides", {3, 5}}}, 2}, blocks);
  Expect({"nn.conv", 3, {3, 1, 7, 7}, {{"pads", {3, 3, 3, 3}}}, 3}, blocks);
  Expect({"nn.conv", 3, {6, 1, 11, 9}, {{"pads", {5, 4, 5, 4}}, {"strides", {2, 2}}}, 3}, blocks);
  Expect({"nn.conv",
          4,
          {6, 2, 5, 4},
          {{"dilations", {1, 3}}, {"strides", {1, 2}}},
          2,
          0,
          "SAME_UPPER"},
         blocks);
}

// Their filters fill vectors on every machine; wide planes fill them as well.
TEST_F(WindowSizes, GroupsOfManyFilters) {
  const char* lanes = "conv_filter_lanes";
  Expect({"nn.conv", 32, {32, 16, 3, 3}, {{"pads", {1, 1, 1, 1}}}, 2, 1}, lanes);
  Expect({"nn.conv", 16, {32, 8, 3, 2}, {{"strides", {2, 1}}, {"pads", {0, 1, 1, 0}}}, 2}, lanes);
  Expect({"nn.conv", 20, {32, 10, 5}, {{"pads", {4, 0}}}, 2, 0, "NOTSET", 1}, lanes);
  Expect({"nn.conv", 18, {64, 9, 1, 3, 3}, {{"pads", {0, 1, 1, 0, 1, 1}}}, 2, 0, "NOTSET", 3},
         lanes);
}

TEST_F(WindowSizes, GroupedInOneAndThreeDims) {
  const char* blocks = "conv_depthwise_blocks";
  Expect({"nn.conv", 3, {3, 1, 9}, {{"pads", {4, 4}}, {"strides", {2}}}, 3, 0, "NOTSET", 1},
         blocks);
  Expect({"nn.conv", 3, {3, 1, 31}, {{"pads", {15, 15}}}, 3, 0, "NOTSET", 1}, blocks);
  Expect({"nn.conv", 2, {2, 1, 2, 3, 3}, {{"pads", {1, 1, 1, 0, 1, 1}}}, 2, 0, "NOTSET", 3},
         blocks);
  Expect({"nn.conv", 2, {2, 1, 3, 5, 5}, {{"pads", {1, 2, 2, 1, 2, 2}}}, 2, 0, "NOTSET", 3},
         blocks);
}

// Their channels fill vectors on every machine; wide planes fill them as well.
TEST_F(WindowSizes, Depthwise) {
  const char* both = "conv_channel_lanes | conv_depthwise_blocks";
  Expect({"nn.conv", 21, {21, 1, 3, 3}, {{"pads", {1, 1, 1, 1}}}, 21, 1}, both);
  Expect({"nn.conv", 16, {16, 1, 7, 7}, {{"pads", {3, 3, 3, 3}}}, 16}, both);
  Expect({"nn.conv", 18, {18, 1, 9, 4}, {{"dilations", {1, 3}}}, 18, 0, "SAME_UPPER"}, both);
  Expect({"nn.conv", 17, {17, 1, 5}, {{"pads", {4, 0}}}, 17, 0, "NOTSET", 1}, both);
  Expect({"nn.conv", 5, {5, 1, 3, 3}, {{"dilations", {3, 17}}, {"pads", {3, 17, 3, 17}}}, 5, 1},
         "conv_depthwise_far");
  Expect({"nn.conv", 5, {5, 1, 2, 3}, {{"dilations", {33, 1}}}, 5, 0, "SAME_UPPER"},
         "conv_depthwise_far");
  const char* strided = "conv_channel_lanes";
  Expect({"nn.conv", 33, {33, 1, 5, 5}, {{"pads", {2, 2, 2, 2}}, {"strides", {2, 2}}}, 33, 1},
         strided);
  Expect({"nn.conv", 16, {16, 1, 2, 3}, {{"strides", {1, 3}}}, 16, 0, "SAME_LOWER"}, strided);
  Expect({"nn.conv", 40, {40, 1, 4}, {{"strides", {2}}, {"pads", {2, 1}}}, 40, 0, "NOTSET", 1},
         strided);
}

TEST_F(WindowSizes, Transposed) {
  const std::string op = "nn.conv_transpose";
  const std::vector<int64_t> two{2, 2}, ones{1, 1, 1, 1};
  Expect({op, 5, {5, 19, 2, 2}, {{"strides", two}}, 1, 1}, "conv_transpose");
  Expect({op, 5, {5, 7, 3, 3}, {{"strides", two}, {"pads", ones}, {"output_padding", {1, 1}}}},
         "conv_transpose");
  Expect({op, 4, {4, 3, 4, 4}, {{"strides", two}, {"pads", ones}}, 2, 1}, "conv_transpose");
  Expect({op, 3, {3, 9, 2, 2}, {{"strides", {1, 3}}}}, "conv_transpose");
  Expect({op, 4, {4, 13, 5, 4}, {{"strides", {2, 4}}, {"pads", {2, 1, 2, 1}}}}, "conv_transpose");
  Expect({op, 3, {3, 1, 6, 12}, {{"strides", {3, 8}}, {"pads", {0, 4, 0, 0}}}}, "conv_transpose");
}

TEST_F(WindowSizes, TransposedInOneAndThreeDims) {
  const std::string op = "nn.conv_transpose";
  Expect({op, 3, {3, 4, 3}, {{"dilations", {2}}, {"pads", {1, 2}}}, 1, 0, "NOTSET", 1},
         "conv_transpose");
  Expect({op, 2, {2, 3, 1, 2, 3}, {{"strides", {2, 1, 2}}}, 1, 0, "NOTSET", 3}, "conv_transpose");
}

TEST_F(WindowSizes, Pools) {
  const std::vector<int64_t> two{2, 2}, three{3, 3}, ones{1, 1, 1, 1};
  Expect({"nn.max_pool", 3, {}, {{"kernel_shape", two}, {"strides", two}}, 1, 1}, "pool_blocks");
  Expect({"nn.max_pool", 3, {}, {{"kernel_shape", three}, {"strides", two}, {"pads", ones}}},
         "pool_blocks");
  Expect({"nn.max_pool", 3, {}, {{"kernel_shape", {9, 9}}, {"pads", {4, 4, 4, 4}}}}, "pool_blocks");
  Expect({"nn.average_pool", 3, {}, {{"kernel_shape", three}, {"strides", two}}}, "pool_blocks");
  Expect({"nn.lp_pool", 3, {}, {{"kernel_shape", three}, {"pads", ones}}}, "pool_blocks");
}

// How many elements are averaged, and where windows begin, follows from the extents.
TEST_F(WindowSizes, PoolsWithPadding) {
  const std::vector<int64_t> two{2, 2}, three{3, 3}, ones{1, 1, 1, 1};
  const char* blocks = "pool_blocks";
  WindowCase c{.op = "nn.average_pool", .channels = 3};
  c.lists = {{"kernel_shape", {3, 5}}, {"pads", {1, 2, 1, 2}}};
  Expect(c, blocks);
  c.halvings = 1;
  Expect(c, blocks);
  c.flags = {"count_include_pad"};
  Expect(c, blocks);
  c.flags = {"ceil_mode"};
  c.lists = {{"kernel_shape", three}, {"pads", ones}, {"strides", {2, 3}}};
  Expect(c, blocks);
  c.flags = {"ceil_mode", "count_include_pad"};
  Expect(c, blocks);
  c.flags = {};
  for (const char* same : {"SAME_UPPER", "SAME_LOWER"}) {
    c.auto_pad = same;
    c.lists = {{"kernel_shape", {4, 3}}, {"strides", {2, 1}}};
    c.op = "nn.average_pool";
    Expect(c, blocks);
    c.op = "nn.max_pool";
    c.halvings = 0;
    Expect(c, blocks);
  }
  c.op = "nn.average_pool";
  c.flags = {"ceil_mode", "count_include_pad"};
  Expect(c, blocks);
  WindowCase grouped{.op = "nn.conv", .channels = 3, .weights = {3, 1, 3, 3}};
  grouped.lists = {{"strides", two}};
  grouped.group = 3;
  grouped.auto_pad = "SAME_UPPER";
  Expect(grouped, "conv_depthwise_blocks");
}

TEST_F(WindowSizes, PoolsOfAnyChannels) {
  const char* blocks = "pool_blocks";
  WindowCase c{.op = "nn.max_pool", .any_channels = true};
  c.lists = {{"kernel_shape", {3, 3}}, {"pads", {1, 1, 1, 1}}, {"strides", {2, 2}}};
  Expect(c, blocks);
  c.op = "nn.average_pool";
  Expect(c, blocks);
  c.halvings = 1;
  c.lists = {{"kernel_shape", {3, 2}}, {"dilations", {2, 1}}};
  c.flags = {"ceil_mode"};
  Expect(c, blocks);
  Expect({.op = "nn.max_pool", .lists = {{"kernel_shape", {3}}}, .rank = 1, .any_channels = true},
         blocks);
}

TEST_F(WindowSizes, Resampled) {
  for (const std::string mode : {"nearest", "linear", "cubic"}) {
    for (const std::string how : {"half_pixel", "align_corners", "asymmetric"}) {
      WindowCase c{.op = "nn.resize", .channels = 3};
      c.words = {{"mode", mode}, {"coordinate_transformation_mode", how}};
      c.scales = {1, 1, 2, 2};
      Expect(c, "resize");
      c.scales = {1, 1, 1.7F, 0.4F};
      c.halvings = 1;
      Expect(c, "resize");
    }
    WindowCase c{.op = "nn.resize", .channels = 3, .words = {{"mode", mode}}};
    c.scales = {1, 1, 0.5F, 1};
    Expect(c, "resize");
  }
}

TEST_F(WindowSizes, PoolsInOneAndThreeDims) {
  Expect({"nn.max_pool", 3, {}, {{"kernel_shape", {3}}, {"pads", {1, 1}}}, 1, 0, "NOTSET", 1},
         "pool_blocks");
  Expect({"nn.max_pool", 2, {}, {{"kernel_shape", {2, 3, 2}}}, 1, 0, "NOTSET", 3}, "pool_blocks");
}

}  // namespace
}  // namespace lathe::lower
