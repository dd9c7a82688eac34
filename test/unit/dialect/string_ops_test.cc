#include "src/dialect/nn/letters.h"
#include "src/dialect/nn/regex.h"
#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

using nn::Regex;

bool Matches(const char* pattern, std::string_view text) { return Regex(pattern).FullMatch(text); }

TEST(Regex, MatchesWholeTexts) {
  EXPECT_TRUE(Matches("", ""));
  EXPECT_FALSE(Matches("", "a"));
  EXPECT_TRUE(Matches("a|bc*", "bccc"));
  EXPECT_FALSE(Matches("a|bc*", "ab"));
  EXPECT_TRUE(Matches("(a|b){2,3}?", "aba"));
  EXPECT_FALSE(Matches("(a|b){2,3}", "a"));
  EXPECT_FALSE(Matches("(?:ab){2}", "ababab"));
  EXPECT_TRUE(Matches("x{,3}", "x{,3}"));
  EXPECT_TRUE(Matches(R"([^\s\d]+@[\w.]+)", "me@ex.org"));
  EXPECT_FALSE(Matches(R"([^\s\d]+@[\w.]+)", "m e@ex.org"));
  EXPECT_TRUE(Matches("[]a-]+", "]-a"));
  EXPECT_TRUE(Matches("[[:alpha:]]+[[:^alpha:]]", "ab1"));
  EXPECT_TRUE(Matches(R"(\Qa.b\E\x41\x{42})", "a.bAB"));
}

TEST(Regex, KnowsAssertionsAndFlags) {
  EXPECT_TRUE(Matches("^a.*z$", "abcz"));
  EXPECT_FALSE(Matches("a.b", "a\nb"));
  EXPECT_TRUE(Matches("(?s)a.b", "a\nb"));
  EXPECT_TRUE(Matches("(?i)aB[c-d]", "AbD"));
  EXPECT_FALSE(Matches("(?i:a)b", "AB"));
  EXPECT_TRUE(Matches("(?m)a\n^b$\nc", "a\nb\nc"));
  EXPECT_TRUE(Matches(R"(a\b.\bb)", "a b"));
  EXPECT_FALSE(Matches(R"(a\Bb\b.)", "abc"));
}

TEST(Regex, WorksOnCodePoints) {
  EXPECT_TRUE(Matches("..", "\xC3\xA4\xE2\x82\xAC"));
  EXPECT_TRUE(Matches("[\xC3\xA0-\xC3\xBF]", "\xC3\xA4"));
  EXPECT_TRUE(Matches("\\p{Greek}\\PL",
                      "\xCF\x89"
                      "1"));
  EXPECT_FALSE(Matches(".", "\xFF"));
}

TEST(Regex, HostilePatternsEndSoon) {
  EXPECT_FALSE(Matches("(a*)*b", std::string(5000, 'a')));
  EXPECT_FALSE(Matches("(a|a)*(a|aa)+c", std::string(5000, 'a')));
  const auto error = [](const std::string& pattern) -> std::string {
    try {
      Regex regex(pattern);
    } catch (const Error& e) {
      return e.id();
    }
    return "";
  };
  EXPECT_EQ(error("((a{1000}){1000}){1000}"), "run/regex");
  EXPECT_EQ(error("[\\pL]{1000}"), "limit/regex");
  EXPECT_EQ(error(std::string(100000, '(')), "run/regex");
  EXPECT_EQ(error("a" + std::string(100000, '*')), "run/regex");
  for (const char* bad : {"(", ")", "[a", "a{2,1}", "*a", "\\", "(?P<n", "[z-a]", "\\p{Nope}",
                          "\\1", "[[:nope:]]", "(?x)a", "\\xZ", "a{1001}"}) {
    EXPECT_EQ(error(bad), "run/regex") << bad;
  }
}

TEST(Regex, FindsTheLongestFromLeftToRight) {
  using Found = std::vector<std::pair<std::string, size_t>>;
  const auto find = [](const char* pattern, std::string_view text) {
    Found found;
    for (const Regex::Match& m : Regex(pattern).FindAll(text)) found.emplace_back(m.text, m.length);
    return found;
  };
  EXPECT_EQ(find("a|ab", "ab abc"), (Found{{"ab", 2}, {"ab", 2}}));
  EXPECT_EQ(find("a|ab|b?", "aXbYab"), (Found{{"a", 1}, {"b", 1}, {"ab", 2}}));
  EXPECT_EQ(find(R"(\w+?)", "ab cd"), (Found{{"ab", 2}, {"cd", 2}}));
  EXPECT_EQ(find(R"(^\w)", "ab cd"), (Found{{"a", 1}}));
  EXPECT_EQ(find(R"(\b\w+\b)", "ab cd"), (Found{{"ab", 2}, {"cd", 2}}));
  EXPECT_EQ(find("ab$|b c|ab", "abab cd"), (Found{{"ab", 2}, {"ab", 2}}));
  EXPECT_EQ(find(".", "a\xC3\xA9"), (Found{{"a", 1}, {"\xC3\xA9", 1}}));
  EXPECT_EQ(find("a*b", "aaa"), Found{});
  EXPECT_EQ(find("a", ""), Found{});
  EXPECT_EQ(find("", "ab"), Found{});
  EXPECT_EQ(find("x*", "\xC3\xA9x"), (Found{{"x", 1}}));
  EXPECT_EQ(find("b", std::string_view("a\0b", 3)), (Found{{"b", 1}}));
}

TEST(Letters, ChangeCase) {
  EXPECT_EQ(nn::InCase("Stra\xC3\x9F"
                       "e \xC3\x84\xFF",
                       false),
            "stra\xC3\x9F"
            "e \xC3\xA4\xFF");
  EXPECT_EQ(nn::InCase("\xCF\x82\xD0\xB6", true), "\xCE\xA3\xD0\x96");
}

Tensor Words(const std::vector<std::string>& words) {
  return Tensor::Of<std::string>({static_cast<int64_t>(words.size())}, words);
}

TEST(StringNormalizer, DropsStopWordsAndKeepsOneEmptyString) {
  RunOp op("nn.string_normalizer");
  op.In(Words({"Monday", "tuesday"})).Attr("stopwords", std::vector<std::string>{"MONDAY"});
  const Tensor left = op.Attr("case_change_action", "UPPER").Run();
  EXPECT_EQ(left, Words({"TUESDAY"}));
  RunOp all("nn.string_normalizer");
  all.In(Words({"a"})).Attr("stopwords", std::vector<std::string>{"a"});
  EXPECT_EQ(all.Run(), Words({""}));
}

TEST(StringSplit, PadsAndLimits) {
  const auto out =
      RunOp("nn.string_split").In(Words({" a  b c ", ""})).Attr("maxsplit", 1).Outputs(2).Values();
  EXPECT_EQ(out[0].tensor().data<std::string>()[1], "b c ");
  EXPECT_EQ(ToInt64s(out[1].tensor()), (std::vector<int64_t>{2, 0}));
  const auto cut = RunOp("nn.string_split")
                       .In(Words({"a--b--", ""}))
                       .Attr("delimiter", "--")
                       .Outputs(2)
                       .Values();
  EXPECT_EQ(ToInt64s(cut[1].tensor()), (std::vector<int64_t>{3, 1}));
}

// As onnxruntime 1.32 has it.
TEST(Tokenize, MarksAndFillsUp) {
  const auto tokens = [](const std::vector<std::string>& words, bool mark, int64_t least,
                         const char* expression = "[a-z\xC3\xA9]+") {
    RunOp op("nn.tokenize");
    op.In(Words(words)).Attr("mark", mark).Attr("mincharnum", least).Attr("pad_value", "#");
    return op.Attr("tokenexp", expression).Run();
  };
  const auto table = [](Shape shape, const std::vector<std::string>& all) {
    return Tensor::Of<std::string>(std::move(shape), all);
  };
  EXPECT_EQ(tokens({"ab abc", "x \xC3\xA9 \xC3\xA9\xC3\xA9_", ""}, false, 2),
            table({3, 2}, {"ab", "abc", "\xC3\xA9\xC3\xA9", "#", "#", "#"}));
  EXPECT_EQ(tokens({"ab abc", "x"}, true, 1),
            table({2, 4}, {"\x02", "ab", "abc", "\x03", "\x02", "x", "\x03", "#"}));
  EXPECT_EQ(tokens({"", " "}, true, 1), table({2, 0}, {}));
  EXPECT_EQ(tokens({"a\nb"}, false, 1, "."), table({1, 3}, {"a", "\n", "b"}));
  EXPECT_EQ(tokens({"a\nb"}, false, 1, "a.b"), table({1, 0}, {}));
}

TEST(TfIdf, ChecksThePool) {
  const auto error = [](const std::vector<int64_t>& starts, const std::vector<int64_t>& places) {
    RunOp op("nn.tf_idf_vectorizer");
    op.Ints({1, 2}).Attr("min_gram_length", 1).Attr("max_gram_length", 2).Attr("mode", "TF");
    op.Attr("max_skip_count", INT64_MAX).Attr("pool_int64s", std::vector<int64_t>{1, 2, 1, 2});
    return op.Attr("ngram_counts", starts).Attr("ngram_indexes", places).EvalError();
  };
  EXPECT_EQ(error({0, 2}, {0, 1, 2}), "");
  EXPECT_EQ(error({0, 3}, {0, 1, 2}), "run/tf-idf");
  EXPECT_EQ(error({0, 9}, {0, 1, 2}), "run/tf-idf");
  EXPECT_EQ(error({0, 2}, {0, 1}), "run/tf-idf");
  EXPECT_EQ(error({0, 2}, {0, 1, INT64_MAX}), "run/tf-idf");
}

}  // namespace
}  // namespace lathe::test
