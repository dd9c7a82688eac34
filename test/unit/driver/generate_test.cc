#include "lathe/driver/generate.h"

#include <numeric>

#include "lathe/driver/model_file.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

using Tokens = std::vector<int64_t>;
using Prompts = std::vector<Tokens>;

const std::string kDecoder = LATHE_SOURCE_DIR "/examples/generate/decoder.onnx";

class GenerateTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  // Compiled once for all tests.
  static const Executable& Decoder() {
    static IrContext context;
    static const Executable executable = [] {
      LoadAllDialects(context);
      Program program = LoadModel(context, kDecoder);
      BindDecoderSizes(program);
      return Executable(program, {.threads = 1});
    }();
    return executable;
  }

  static Prompts TokensOf(const Generation& generation) {
    Prompts tokens;
    for (const GeneratedSequence& s : generation.sequences) tokens.push_back(s.tokens);
    return tokens;
  }

  static Prompts Generate(const Executable& executable, const Prompts& prompts,
                          const GenerateOptions& options) {
    return TokensOf(Generator(executable).Generate(prompts, options));
  }

  std::string IdOf(const Executable& executable, const Prompts& prompts,
                   const GenerateOptions& options = {}) {
    return ErrorOf([&] { (void)Generate(executable, prompts, options); }).id();
  }

  // A token's logits depend on itself alone; t is followed by 3 * t + 1 modulo 8.
  static std::string Follower(const std::string& ids, const std::string& dims) {
    std::string rows;
    for (int t = 0; t < 8; ++t) {
      for (int i = 0; i < 8; ++i) {
        rows += StrCat(rows.empty() ? "" : ", ", i == (3 * t + 1) % 8 ? 4 : 0);
      }
    }
    const std::string type = StrCat("v_tensor<[", dims, "], ", ids, ">");
    const std::string logits = StrCat("v_tensor<[", dims, ", 8], f32>");
    return StrCat("%table = builtin.constant() {value = tensor<[8, 8], f32> [", rows,
                  "]} : () -> v_tensor<[8, 8], f32>\n%ids = nn.feed() {name = \"ids\"} : () -> ",
                  type, "\n%y = nn.gather(%table, %ids) : (v_tensor<[8, 8], f32>, ", type, ") -> ",
                  logits, "\nnn.fetch(%y) {name = \"scores\"} : (", logits, ") -> ()");
  }
};

// A loop as one would write it, without batches.
Tokens PlainLoop(const Executable& executable, const Tokens& prompt, int64_t count) {
  NamedValues past;
  for (const Port& port : executable.inputs()) {
    if (port.name.starts_with("past"))
      past.emplace_back(port.name, Tensor(port.element, {1, 1, 0, 16}));
  }
  Tokens ids = prompt, made;
  int64_t length = 0;
  while (std::cmp_less(made.size(), count)) {
    const auto size = static_cast<int64_t>(ids.size());
    Tokens positions(ids.size());
    std::iota(positions.begin(), positions.end(), length);
    length += size;
    NamedValues inputs = past;
    inputs.emplace_back("input_ids", Tensor::Of<int64_t>({1, size}, ids));
    inputs.emplace_back("position_ids", Tensor::Of<int64_t>({1, size}, positions));
    inputs.emplace_back("attention_mask",
                        Tensor::Of<int64_t>({1, length}, Tokens(static_cast<size_t>(length), 1)));
    const NamedValues outputs = executable.Run(inputs);
    const auto logits = ToDoubles(Find(outputs, "logits")->tensor());
    const auto last = logits.end() - 16;
    ids = {std::max_element(last, logits.end()) - last};
    made.push_back(ids[0]);
    for (auto& [name, value] : past) value = *Find(outputs, "present" + name.substr(15));
  }
  return made;
}

TEST_F(GenerateTest, IsThePlainLoop) {
  for (const Tokens& prompt : Prompts{{3, 1, 4, 3, 1}, {5}, {1, 2, 3, 4, 5, 6, 7, 1, 2}}) {
    EXPECT_EQ(Generate(Decoder(), {prompt}, {.max_new_tokens = 12}),
              Prompts{PlainLoop(Decoder(), prompt, 12)});
  }
}

TEST_F(GenerateTest, BatchesAreTheirSequences) {
  const Prompts prompts = {{3, 1, 4, 3, 1}, {5, 5}, {1, 2, 3, 4, 1}, {7}, {2, 9, 2}};
  Prompts alone;
  for (const Tokens& prompt : prompts) {
    alone.push_back(Generate(Decoder(), {prompt}, {.max_new_tokens = 9})[0]);
  }
  for (const Padding padding : {Padding::kAuto, Padding::kRight, Padding::kLeft, Padding::kNone}) {
    EXPECT_EQ(Generate(Decoder(), prompts, {.max_new_tokens = 9, .padding = padding}), alone);
  }
}

TEST_F(GenerateTest, DrawsDependOnSeedAndSequenceAlone) {
  const Tokens prompt = {1, 2, 1, 3, 1, 4, 1, 5, 1};
  const GenerateOptions drawn{.max_new_tokens = 20, .temperature = 4, .seed = 7};
  const Prompts both = Generate(Decoder(), {prompt, prompt}, drawn);
  EXPECT_EQ(Generate(Decoder(), {prompt, {3, 1, 4, 3}}, drawn)[0], both[0]);
  EXPECT_EQ(Generate(Decoder(), {{3, 1, 4, 3}, prompt}, drawn)[1], both[1]);
  EXPECT_NE(both[0], both[1]);
  GenerateOptions other = drawn;
  other.seed = 8;
  EXPECT_NE(Generate(Decoder(), {prompt}, other)[0], both[0]);
  const GenerateOptions one{.max_new_tokens = 20, .temperature = 4, .top_k = 1};
  EXPECT_EQ(Generate(Decoder(), {prompt}, one),
            Generate(Decoder(), {prompt}, {.max_new_tokens = 20}));
}

TEST_F(GenerateTest, SequencesEnd) {
  const Generation g = Generator(Decoder()).Generate(Prompts{{3, 1, 4, 3, 1}, {5, 5}},
                                                     {.max_new_tokens = 6, .stop = {3, 8}});
  EXPECT_EQ(TokensOf(g), (Prompts{{4, 3}, {5, 5, 5, 5, 5, 5}}));
  EXPECT_EQ(g.sequences[0].reason, EndReason::kStop);
  EXPECT_EQ(g.sequences[1].reason, EndReason::kMaxNewTokens);
  EXPECT_EQ(g.num_tokens(), 8);
  EXPECT_EQ(g.steps, 6);
  const Generation full =
      Generator(Decoder()).Generate(Prompts{{3, 1, 4, 3, 1}, {5, 5}}, {.max_length = 7});
  EXPECT_EQ(TokensOf(full), (Prompts{{4, 3}, {5, 5, 5, 5, 5}}));
  EXPECT_EQ(full.sequences[0].reason, EndReason::kMaxLength);
}

TEST_F(GenerateTest, TokensAreReportedAsTheyCome) {
  Prompts reported(2);
  const GenerateOptions options{.max_new_tokens = 4, .on_token = [&](size_t i, int64_t token) {
                                  reported[i].push_back(token);
                                }};
  EXPECT_EQ(Generate(Decoder(), {{3, 1, 3}, {5}}, options), reported);
  const GenerateOptions failing{
      .on_token = [](size_t, int64_t) { throw Error(ErrorCode::kLimit, "test/enough", "enough"); }};
  EXPECT_EQ(IdOf(Decoder(), {{5}}, failing), "test/enough");
  CancelToken cancel;
  const GenerateOptions cancelled{.on_token = [&](size_t, int64_t) { cancel.Cancel(); },
                                  .cancel = &cancel};
  EXPECT_EQ(IdOf(Decoder(), {{5}}, cancelled), "run/cancelled");
}

TEST_F(GenerateTest, SavedAndInterpretedAreTheSame) {
  const Prompts prompts = {{3, 1, 4, 3, 1}, {5, 5}};
  const Prompts wanted = Generate(Decoder(), prompts, {.max_new_tokens = 8});
  const TempFolder folder;
  Decoder().Save(folder / "decoder.lx");
  EXPECT_EQ(Generate(Executable::Load(folder / "decoder.lx"), prompts, {.max_new_tokens = 8}),
            wanted);
  const Program program = LoadModel(context_, kDecoder);  // as it is
  EXPECT_EQ(Generate(Executable(program, {.machine_code = false}), prompts, {.max_new_tokens = 8}),
            wanted);
}

TEST_F(GenerateTest, BadPromptsAreErrors) {
  EXPECT_EQ(IdOf(Decoder(), {}), "generate/prompt");
  EXPECT_EQ(IdOf(Decoder(), {{1}, {}}), "generate/prompt");
  EXPECT_EQ(IdOf(Decoder(), {{1, 16}}), "generate/token");
  EXPECT_EQ(IdOf(Decoder(), {{-1}}), "generate/token");
  EXPECT_EQ(IdOf(Decoder(), {{1}}, {.stop = {99}}), "generate/token");
  EXPECT_EQ(IdOf(Decoder(), {{1, 2, 3}}, {.max_length = 3}), "generate/prompt");
  EXPECT_EQ(IdOf(Decoder(), {{1}}, {.max_new_tokens = 0}), "generate/option");
}

// The table has 64 positions; that is known by the run that looks for more.
TEST_F(GenerateTest, TooManyPositionsAreAnError) {
  const Error error = ErrorOf([&] { (void)Generate(Decoder(), {Tokens(65, 1)}, {}); });
  EXPECT_EQ(error.id(), "run/index");
  ASSERT_FALSE(error.notes().empty());
  EXPECT_NE(error.notes().back().text.find("65 ids"), std::string::npos);
  EXPECT_EQ(Generate(Decoder(), {Tokens(60, 1)}, {.max_length = 64})[0].size(), 4U);
}

TEST_F(GenerateTest, WithoutACacheTheWholeSequenceRuns) {
  for (const char* element : {"i64", "i32"}) {
    const Executable follower(Parse(Follower(element, "B, S")), {.threads = 1});
    EXPECT_FALSE(Generator(follower).has_cache());
    EXPECT_EQ(Generator(follower).names().logits, "scores");
    EXPECT_EQ(Generate(follower, {{0}, {7, 7, 2}}, {.max_new_tokens = 3}),
              (Prompts{{1, 4, 5}, {7, 6, 3}}));
  }
}

TEST_F(GenerateTest, FixedSizesArePadded) {
  const Executable follower(Parse(Follower("i64", "2, 4")), {.threads = 1});
  const Generation g =
      Generator(follower).Generate(Prompts{{0}, {7, 7, 2}, {1, 1}}, {.max_new_tokens = 8});
  EXPECT_EQ(TokensOf(g), (Prompts{{1, 4, 5, 0}, {7, 6}, {4, 5, 0}}));
  EXPECT_EQ(g.sequences[0].reason, EndReason::kMaxLength);
  EXPECT_EQ(IdOf(follower, {{1, 1, 1, 1, 1}}), "generate/prompt");
}

TEST_F(GenerateTest, WhatIsNotUnderstoodIsAnError) {
  const auto find = [&](const std::string& more, const DecoderNames& names = {}) {
    const Executable executable(Parse(Follower("i64", "B, S") + more), {.threads = 1});
    return ErrorOf([&] { Generator(executable, names); });
  };
  const auto feed = [](const std::string& name, const std::string& type) {
    return StrCat("\n%", name, " = nn.feed() {name = \"", name, "\"} : () -> ", type,
                  "\nnn.fetch(%", name, ") {name = \"", name, " out\"} : (", type, ") -> ()");
  };
  EXPECT_EQ(find("").id(), "");
  const Error unknown = find(feed("speaker", "v_tensor<[3], f32>"), {.logits = "scores"});
  EXPECT_EQ(unknown.id(), "generate/input");
  EXPECT_NE(unknown.message().find("'speaker'"), std::string::npos);
  EXPECT_EQ(unknown.notes().size(), 2U);
  EXPECT_EQ(find("", {.ids = "tokens"}).id(), "generate/input");
  EXPECT_EQ(find("", {.past = "past", .present = "present.*"}).id(), "generate/cache");
  EXPECT_EQ(find("", {.past = "past.*", .present = "present.*"}).id(), "generate/input");
  EXPECT_EQ(find("", {.logits = "logits"}).id(), "generate/output");
  EXPECT_EQ(find(feed("attention_mask", "v_tensor<[B, T], i64>")).id(), "generate/output");
  EXPECT_EQ(find(feed("attention_mask", "v_tensor<[B], i64>"), {.logits = "scores"}).id(),
            "generate/input");
}

}  // namespace
}  // namespace lathe
