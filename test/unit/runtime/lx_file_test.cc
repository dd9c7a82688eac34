#include "lathe/runtime/lx_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "src/runtime/lx_format.h"
#include "test/unit/runtime/count_allocations.h"
#include "test/unit/runtime/plan_util.h"
#include "test/unit/runtime/reseal.h"
#include "test/unit/temp_folder.h"

namespace lathe::runtime {
namespace {

using namespace testing;  // NOLINT: what plans of tests are made of

class LxFileTest : public ::testing::Test {
 protected:
  static Plan FullPlan() {
    Plan plan = *AffinePlan();
    plan.constants.push_back(Tensor::Of<int64_t>({2}, {7, -7}));
    plan.constants.push_back(plan.constants[0]);  // shared
    plan.constants.push_back(Tensor(ElementType::kI4, {3}));
    plan.constants.push_back(Tensor(ElementType::kF64, {0, 4}));
    plan.constant_names = {"row", "pair", "row again", "packed", "nothing"};
    plan.constraints.push_back(AtMostFortyRows());
    plan.code = {"test", {}, "not really code", {0, 4}};
    return plan;
  }
  std::string Saved(const Plan& plan) {
    SavePlan(plan, path_);
    return ReadFile(path_);
  }
  static std::shared_ptr<Buffer> Aligned(const std::string& bytes) {
    auto buffer = Buffer::Allocate(bytes.size());
    std::memcpy(buffer->mutable_data(), bytes.data(), bytes.size());
    return buffer;
  }
  // "no error", or id and message of an Error that names the file.
  static std::string LoadError(const std::string& bytes) {
    try {
      const auto plan = LoadPlan(Aligned(bytes), "some.lx");
      Executor(TestKernels(), plan);
      return "no error";
    } catch (const Error& e) {
      const bool of_plan = e.id().starts_with("plan/") || e.id().starts_with("limit/size");
      EXPECT_TRUE(of_plan || e.where().starts_with("some.lx")) << e.Render();
      EXPECT_NE(e.code(), ErrorCode::kInternal) << e.Render();
      return StrCat(e.id(), ": ", e.message());
    }
  }
  template <class F>
  static std::string Changed(std::string bytes, F&& change) {
    lx::Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    std::vector<lx::Section> sections(header.num_sections);
    const size_t table = sections.size() * sizeof(lx::Section);
    std::memcpy(sections.data(), bytes.data() + sizeof(header), table);
    change(header, sections);
    header.checksum = lx::HeaderChecksum(header, sections);
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), sections.data(), table);
    return bytes;
  }

  TempFolder folder_;
  const std::string path_ = folder_.path() + "/some.lx";
};

TEST_F(LxFileTest, GivesBackThePlan) {
  const Plan plan = FullPlan();
  SavePlan(plan, path_);
  const auto loaded = LoadPlan(path_);
  const std::vector<lx::Constant> none;
  EXPECT_EQ(lx::EncodePlan(*loaded, none), lx::EncodePlan(plan, none));
  EXPECT_EQ(loaded->code.bytes, plan.code.bytes);
  EXPECT_EQ(loaded->constant_names, plan.constant_names);
  ASSERT_EQ(loaded->constants.size(), plan.constants.size());
  for (size_t i = 0; i < plan.constants.size(); ++i) {
    EXPECT_EQ(loaded->constants[i], plan.constants[i]) << i;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded->constants[i].raw()) % 64, 0u) << i;
  }
  EXPECT_EQ(loaded->constants[0].raw(), loaded->constants[2].raw())
      << "shared bytes are written once";
  VerifyFile(path_);
  const Executor executor(TestKernels(), loaded, {.threads = 1});
  EXPECT_EQ(executor.Run({{"x", Ramp(3)}})[0].second, AffineOf(Ramp(3)));
  ASSERT_EQ(loaded->constraints.size(), 1u);
  EXPECT_THROW(executor.Run({{"x", Ramp(41)}}), Error);
}

TEST_F(LxFileTest, TheSameBytesEveryTime) {
  EXPECT_EQ(Saved(FullPlan()), Saved(FullPlan()));
  EXPECT_EQ(Saved(FullPlan()), Saved(*LoadPlan(Aligned(Saved(FullPlan())), "")));
}

TEST_F(LxFileTest, AFailedSaveLeavesTheOldFile) {
  const std::string before = Saved(FullPlan());
  Plan plan = FullPlan();
  plan.constants.push_back(Tensor(ElementType::kF32, {1 << 20}));
  MakeDirectory(folder_.path() + "/taken.lx");
  EXPECT_THROW(SavePlan(plan, folder_.path() + "/taken.lx"), Error);
  EXPECT_THROW(SavePlan(plan, folder_.path() + "/none/some.lx"), Error);
  EXPECT_EQ(ReadFile(path_), before);
}

TEST_F(LxFileTest, SaysWhatIsWrong) {
  const std::string good = Saved(FullPlan());
  EXPECT_EQ(LoadError(good), "no error");
  EXPECT_EQ(LoadError(""), "lx/magic: this is not a compiled program (.lx)");
  EXPECT_EQ(LoadError("ONNX" + good), "lx/magic: this is not a compiled program (.lx)");
  EXPECT_EQ(LoadError(good.substr(0, 40)),
            "lx/truncated: the file is cut off: it has 40 of 64 bytes");
  EXPECT_EQ(LoadError(good.substr(0, good.size() - 1)),
            StrCat("lx/truncated: the file is cut off: it has ", good.size() - 1, " of ",
                   good.size(), " bytes"));
  EXPECT_EQ(LoadError(good + "x"), StrCat("lx/size: the file has ", good.size() + 1,
                                          " bytes; it should have ", good.size()));
  const auto changed = [&](auto change) { return LoadError(Changed(good, change)); };
  EXPECT_EQ(changed([](lx::Header& h, auto&) { h.version = 1; }),
            StrCat("lx/version: the file has version 1; this library reads version ",
                   runtime::kFileVersion));
  EXPECT_EQ(changed([](lx::Header& h, auto&) { h.num_sections = 2; }),
            "lx/checksum: the header is damaged");
  EXPECT_EQ(changed([](lx::Header& h, auto&) { h.num_sections = ~0u; }),
            "lx/section: there is no room for 4294967295 sections");
  EXPECT_EQ(changed([](auto&, std::vector<lx::Section>& s) { s[2].bytes = ~uint64_t{0}; }),
            StrCat("lx/section: a section of 18446744073709551615 bytes at byte 4096 does not fit "
                   "into the file of ",
                   good.size()));
  EXPECT_EQ(
      changed([](auto&, std::vector<lx::Section>& s) { s[1].offset = s[0].offset; }).substr(0, 10),
      "lx/section");
  EXPECT_EQ(changed([](auto&, std::vector<lx::Section>& s) { s[1].kind = lx::Kind{9}; }),
            "lx/section: the file has no code");
  std::string damaged = good;
  damaged[200] ^= 1;
  EXPECT_EQ(LoadError(damaged), "lx/checksum: the plan is damaged");
}

TEST_F(LxFileTest, DamagedConstantsAreFoundOnDemand) {
  std::string bytes = Saved(FullPlan());
  bytes[4096 + 2] ^= 1;
  WriteFile(path_, bytes);
  EXPECT_NO_THROW(LoadPlan(path_));
  try {
    VerifyFile(path_);
    FAIL() << "nothing was found";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "constant 0 (f32[5]) is damaged");
    EXPECT_EQ(e.where(), path_);
  }
}

TEST_F(LxFileTest, ErrorsOfThePlanNameTheFile) {
  Plan plan = FullPlan();
  plan.steps[0].kernel = 5;
  SavePlan(plan, path_);
  try {
    LoadExecutor(path_);
    FAIL() << "nothing was found";
  } catch (const Error& e) {
    EXPECT_EQ(e.id(), "plan/step");
    EXPECT_EQ(e.where(), path_ + ", step 0: twice");
  }
}

TEST_F(LxFileTest, EveryTruncationIsAnError) {
  const std::string good = Saved(FullPlan());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(LoadError(good.substr(0, size)), "no error") << size;
  }
}

TEST_F(LxFileTest, EveryDamagedByteBeforeTheConstantsIsFound) {
  const std::string good = Saved(FullPlan());
  lx::Section code;
  std::memcpy(&code, good.data() + sizeof(lx::Header) + sizeof(lx::Section), sizeof(code));
  for (size_t i = 0; i < code.offset + code.bytes; ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    const bool padding = i >= 160 && LoadError(bytes) == "no error";
    if (padding) {
      EXPECT_EQ(good[i], 0) << i;
    } else {
      EXPECT_NE(LoadError(bytes), "no error") << i;
    }
  }
}

// Damage that the checksums do not show: errors only, and no absurd allocations.
TEST_F(LxFileTest, HostileBytesDoNoHarm) {
  const std::string good = Saved(FullPlan());
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  const size_t interesting = 4096;  // header, sections, plan and code
  int loaded = 0;
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = good;
    const size_t changes = 1 + below(4);
    for (size_t c = 0; c < changes; ++c) {
      const size_t at = 16 + below(interesting - 16);
      switch (below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 2: {
          const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x10000};
          std::memcpy(&bytes[std::min(at, interesting - 4)], &values[below(6)], 4);
          break;
        }
        default: {
          const size_t gone = 1 + below(8);
          bytes.erase(at, gone);
          bytes.insert(interesting - gone, gone, '\0');
        }
      }
    }
    TakeLargestAllocation();
    loaded += LoadError(Resealed(bytes)) == "no error" ? 1 : 0;
    ASSERT_LT(TakeLargestAllocation(), 1u << 20) << round;
  }
  EXPECT_GT(loaded, 0) << "changes of labels and padding are harmless";
  EXPECT_LT(loaded, kRounds);
}

}  // namespace
}  // namespace lathe::runtime
