#include "lathe/lower/strategy.h"

#include "test/unit/lower/fusion_util.h"

namespace lathe::testing {
namespace {

const TargetKeys kTarget{"tiny", {"tiny-v2", "cpu"}};

class Strategy : public NetTest {
 protected:
  // conv with A (10), B (15), and C (20) where there are 16 input channels or more.
  OpStrategy Three(const Dim& channels) {
    OpStrategy s;
    s.Add({.name = "A"}).Add({.name = "B", .plevel = 15});
    s.Add(Condition::AtLeast(channels, 16), {.name = "C", .plevel = 20});
    return s;
  }

  OpCall Call(const Dim& channels) {
    nets_.push_back(std::make_unique<Net>(context_));
    Net& net = *nets_.back();
    net.builder().set_location(Location::Name(context_, "conv1"));
    const Value x = net.Feed({1, channels, 8, 8}), w = net.Feed({4, channels, 3, 3});
    return {net.Op("conv", {x, w}).defining_op(), &kTarget};
  }

  static std::vector<std::string> Valid(const Selection& s) {
    std::vector<std::string> names;
    for (const Candidate& c : s.candidates) {
      if (c.refused.empty()) names.push_back(c.implementation->name);
    }
    return names;
  }

  std::vector<std::unique_ptr<Net>> nets_;
};

using Names = std::vector<std::string>;

TEST_F(Strategy, PriorityAmongTheValid) {
  const OpStrategy few = Three(8), many = Three(16);
  const Selection a = SelectImplementation(few, Call(8));
  EXPECT_EQ(Valid(a), (Names{"A", "B"}));
  EXPECT_EQ(a.best().name, "B");
  EXPECT_TRUE(a.is_static());
  const Selection b = SelectImplementation(many, Call(16));
  EXPECT_EQ(Valid(b), (Names{"A", "B", "C"}));
  EXPECT_EQ(b.best().name, "C");
}

TEST_F(Strategy, RecordsBeatPriority) {
  const OpCall eight = Call(8), sixteen = Call(16);
  const OpStrategy few = Three(8), many = Three(16);
  TuningRecords records;
  records.Add(eight.Workload(), "tiny", "A", 0.5);
  records.Add(sixteen.Workload(), "tiny", "A", 0.5);
  EXPECT_EQ(SelectImplementation(few, eight, &records).best().name, "A");
  EXPECT_EQ(SelectImplementation(many, sixteen, &records).best().name, "A");
  records.Add(sixteen.Workload(), "tiny", "B", 0.25);
  EXPECT_EQ(SelectImplementation(few, eight, &records).best().name, "A");
  EXPECT_EQ(SelectImplementation(many, sixteen, &records).best().name, "B");
  // Of another machine, and of what is refused here.
  records.Add(eight.Workload(), "other", "B", 0.01);
  records.Add(eight.Workload(), "tiny", "C", 0.01);
  EXPECT_EQ(SelectImplementation(few, eight, &records).best().name, "A");
}

TEST_F(Strategy, FirstOfEqualsIsTaken) {
  OpStrategy s;
  s.Add({.name = "first", .plevel = 5}).Add({.name = "second", .plevel = 5});
  EXPECT_EQ(SelectImplementation(s, Call(8)).best().name, "first");
}

TEST_F(Strategy, SymbolsMakeADispatch) {
  const Dim n = Dim::Symbol("C");
  const OpStrategy s = Three(n);
  const Selection selection = SelectImplementation(s, Call(n));
  ASSERT_EQ(selection.dispatch.size(), 2U);
  const auto pick = [&](int64_t extent) {
    return selection.Pick([&](std::string_view) { return std::optional(extent); }).name;
  };
  EXPECT_EQ(pick(8), "B");
  EXPECT_EQ(pick(15), "B");
  EXPECT_EQ(pick(16), "C");
  EXPECT_EQ(pick(1000), "C");
  EXPECT_EQ(selection.Pick([](std::string_view) { return std::nullopt; }).name, "B");
}

TEST_F(Strategy, ADispatchThatCoversEverythingNeedsNoDefault) {
  const Dim n = Dim::Symbol("C");
  OpStrategy s;
  s.Add(Condition::AtLeast(n, 16), {.name = "wide"});
  s.Add(Condition::Less(n, 16), {.name = "narrow"});
  EXPECT_EQ(SelectImplementation(s, Call(n)).dispatch.size(), 2U);
}

// What is refused for all extents comes before: it does not bring forward what else serves all.
TEST_F(Strategy, ADispatchKeepsTheOrderOfEquals) {
  const Dim n = Dim::Symbol("C");
  OpStrategy s;
  s.Add({.name = "none", .refuse = [](const OpCall&) { return "it is none"; }});
  s.Add(Condition::AtLeast(n, 16), {.name = "wide"});
  s.Add({.name = "any"});
  const Selection selection = SelectImplementation(s, Call(n));
  ASSERT_EQ(selection.dispatch.size(), 2U);
  EXPECT_EQ(selection.best().name, "wide");
}

TEST_F(Strategy, NoneValidNamesWhatWasRejected) {
  OpStrategy s;
  s.Add(Condition::AtLeast(8, 16), {.name = "wide"});
  s.Add({.name = "winograd", .refuse = [](const OpCall&) { return "the stride is not 1"; }});
  const OpCall call = Call(8);
  const Error error = ErrorOf([&] { (void)SelectImplementation(s, call); });
  EXPECT_EQ(error.id(), "lower/no-implementation");
  const std::string text = error.Render();
  for (const char* part : {"nn.conv", "'tiny'", "conv1", "v_tensor<[1, 8, 8, 8], f32>",
                           "wide: it needs 8 >= 16", "winograd: the stride is not 1"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST_F(Strategy, NoneForAllExtentsIsAnErrorToo) {
  const Dim n = Dim::Symbol("C");
  OpStrategy s;
  s.Add(Condition::AtLeast(n, 16), {.name = "wide"});
  const OpCall call = Call(n);
  const Error error = ErrorOf([&] { (void)SelectImplementation(s, call); });
  EXPECT_EQ(error.id(), "lower/no-implementation");
  EXPECT_NE(error.Render().find("wide: it is not known whether C >= 16"), std::string::npos);
}

TEST_F(Strategy, ExplainNamesAllCandidates) {
  OpStrategy s = Three(8);
  s.Add({.name = "slow", .plevel = 1, .cost = [](const OpCall&) { return 0.002; }});
  const OpCall call = Call(8);
  TuningRecords records;
  records.Add(call.Workload(), "tiny", "A", 0.0005);
  EXPECT_EQ(SelectImplementation(s, call, &records).Explain(),
            "A  plevel 10  taken  measured 0.5 ms\n"
            "B  plevel 15  valid\n"
            "C  plevel 20  refused: it needs 8 >= 16\n"
            "slow  plevel 1  valid  estimated 2.0 ms\n");
}

TEST_F(Strategy, RegistryLooksFromSpecialToGeneric) {
  StrategyRegistry registry;
  const auto named = [](std::string name) {
    return [name](const OpCall&) {
      OpStrategy s;
      s.Add({.name = name});
      return s;
    };
  };
  const OpCall call = Call(8);
  const auto found = [&] {
    const OpStrategy s = registry.Find(call);
    return s.specializations()[0].implementations[0].name;
  };
  registry.Register("nn.conv", "gpu", named("gpu"));
  const Error none = ErrorOf([&] { (void)registry.Find(call); });
  EXPECT_EQ(none.id(), "lower/no-strategy");
  EXPECT_NE(none.Render().find("there are strategies for gpu"), std::string::npos);
  registry.Register("nn.conv", "generic", named("generic"));
  EXPECT_EQ(found(), "generic");
  registry.Register("nn.conv", "cpu", named("cpu"));
  EXPECT_EQ(found(), "cpu");
  registry.Register("nn.conv", "tiny-v2", named("tiny-v2"));
  EXPECT_EQ(found(), "tiny-v2");
  EXPECT_EQ(ErrorOf([&] { registry.Register("nn.conv", "cpu", named("again")); }).id(),
            "lower/duplicate-strategy");
}

TEST_F(Strategy, WorkloadsDifferByShapeAndAttributes) {
  const OpCall a = Call(8), same = Call(8), other = Call(9);
  EXPECT_EQ(a.Workload(), same.Workload());
  EXPECT_NE(a.Workload(), other.Workload());
  same.op->SetAttribute("note", BoolAttribute::Get(context_, true));  // a runtime attribute
  EXPECT_EQ(a.Workload(), same.Workload());
  same.op->SetAttribute("group", IntAttribute::Get(context_, 2));
  EXPECT_NE(a.Workload(), same.Workload());
}

TEST(TuningRecordsText, ReadsWhatItWrites) {
  TuningRecords records;
  records.Add("nn.conv(\"x\")", "tiny", "A", 0.5);
  records.Add("nn.conv(\"x\")", "tiny", "A", 0.125);
  records.Add("nn.conv(\"x\")", "tiny", "A", 0.25);
  records.Add("nn.matmul()", "tiny", "B", 1e-7);
  const std::string text = records.ToText();
  const TuningRecords again = TuningRecords::FromText("\n" + text);
  EXPECT_EQ(again.ToText(), text);
  EXPECT_EQ(again.size(), 2U);
  EXPECT_EQ(again.Find("nn.conv(\"x\")", "tiny", "A"), std::optional(0.125));
  EXPECT_EQ(again.Find("nn.conv(\"x\")", "tiny", "B"), std::nullopt);
}

TEST(TuningRecordsText, BadLinesAreNamed) {
  for (const auto& [line, why] :
       {std::pair("[1]", "must be a JSON object"),
        std::pair("{\"workload\":", "must be a JSON object"),
        std::pair(R"({"workload":"w","target":"t","seconds":1})",
                  "needs the string 'implementation'"),
        std::pair(R"({"workload":"w","target":"t","implementation":"A","seconds":-1})",
                  "needs 'seconds' of at least 0")}) {
    try {
      (void)TuningRecords::FromText(StrCat("\n", line, "\n"));
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "tune/record");
      EXPECT_NE(error.message().find(why), std::string::npos) << error.message();
      EXPECT_EQ(error.where(), "line 2");
    }
  }
}

}  // namespace
}  // namespace lathe::testing
