#include "lathe/runtime/artifacts.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/safetensors.h"
#include "src/runtime/shared_library.h"
#include "test/unit/runtime/count_allocations.h"
#include "test/unit/runtime/plan_util.h"
#include "test/unit/temp_folder.h"

namespace lathe::runtime {
namespace {

using namespace testing;  // NOLINT: what plans of tests are made of
using Json = nlohmann::ordered_json;

class ArtifactsTest : public ::testing::Test {
 protected:
  static Plan Affine() {
    Plan plan = *AffinePlan();
    plan.constant_names = {"row"};
    plan.constraints.push_back(AtMostFortyRows());
    plan.code = {"test", {"fast"}, "not really code", {0, 4}};
    return plan;
  }

  static std::string TextOf(const Buffer& buffer) {
    return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
  }
  static std::shared_ptr<Buffer> BufferOf(const std::string& bytes) {
    auto buffer = Buffer::Allocate(bytes.size());
    if (!bytes.empty()) std::memcpy(buffer->mutable_data(), bytes.data(), bytes.size());
    return buffer;
  }

  // "no error", or id and message; and the plan must be one that an executor takes or refuses.
  static std::string ErrorOf(const Artifacts& artifacts) {
    try {
      Executor(TestKernels(), PlanOf(artifacts), {.threads = 1});
      return "no error";
    } catch (const Error& e) {
      EXPECT_NE(e.code(), ErrorCode::kInternal) << e.Render();
      return StrCat(e.id(), ": ", e.message());
    }
  }
  template <class F>
  static std::string ChangedGraph(F&& change) {
    Artifacts artifacts = MakeArtifacts(Affine());
    Json graph = Json::parse(artifacts.graph);
    change(graph);
    artifacts.graph = graph.dump();
    return ErrorOf(artifacts);
  }

  TempFolder folder_;
};

TEST_F(ArtifactsTest, TheGraphIsAsGraphRunTimesReadIt) {
  EXPECT_EQ(MakeArtifacts(Affine()).graph, R"({
"nodes": [
  {"op":"null","name":"x","inputs":[]},
  {"op":"null","name":"row","inputs":[]},
  {"op":"tvm_op","name":"fused_twice","attrs":{"func_name":"fused_twice","num_inputs":"1","num_outputs":"1","flatten_data":"0","label":"twice","origin":"node 'twice'"},"inputs":[[0,0,0]]},
  {"op":"tvm_op","name":"fused_twice_1","attrs":{"func_name":"fused_twice","num_inputs":"1","num_outputs":"1","flatten_data":"0","label":"twice again","origin":"node 'twice again'"},"inputs":[[2,0,0]]},
  {"op":"tvm_op","name":"fused_add","attrs":{"func_name":"fused_add","num_inputs":"2","num_outputs":"1","flatten_data":"0","label":"add","origin":"node 'add'"},"inputs":[[3,0,0],[1,0,0]]}
],
"arg_nodes": [0,1],
"heads": [[4,0,0]],
"node_row_ptr": [0,1,2,3,4,5],
"attrs": {
  "lathe_version": ["int",5],
  "target": ["str","test"],
  "precision": ["str",""],
  "library": ["str","15835290793692513186"],
  "output_names": ["list_str",["z"]],
  "symbols": ["list_str",["N"]],
  "symbol_input": ["list_int",[0]],
  "symbol_axis": ["list_int",[0]],
  "constraints": ["list_object",[{"kind":"at_least","sizes":["40","N"],"id":"shape/concat","message":"nn.concat: more than 40 rows","origin":"node 'join'","hint":"take less","notes":["inputs : v_tensor<[N, 5], f32>"]}]],
  "shape": ["list_shape",[[-1,5],[5],[-1,5],[-1,5],[-1,5]]],
  "dltype": ["list_str",["float32","float32","float32","float32","float32"]],
  "storage_id": ["list_int",[0,2,3,4,1]],
  "offset": ["list_int",[0,0,0,0,0]],
  "dims": ["list_str",["N,5","5","N,5","N,5","N,5"]],
  "storage_place": ["list_str",["input","output","parameter","arena","arena"]],
  "arena_bytes": ["list_str",["20*N","20*N"]],
  "arena_begin": ["list_int",[0,1]],
  "arena_end": ["list_int",[1,2]],
  "arena_offset": ["list_int",[0,0]]
}
}
)");
}

TEST_F(ArtifactsTest, GivesBackThePlan) {
  const Artifacts parts = MakeArtifacts(Affine());
  const auto plan = PlanOf(parts);
  EXPECT_EQ(plan->code.bytes, "not really code");
  EXPECT_EQ(plan->code.entries, (std::vector<uint64_t>{0, 4}));
  EXPECT_EQ(plan->code.features, std::vector<std::string>{"fast"});
  EXPECT_EQ(plan->steps[1].label, "twice again");
  EXPECT_EQ(plan->steps[1].origin, "node 'twice again'");
  const Executor executor(TestKernels(), plan, {.threads = 1});
  EXPECT_EQ(executor.Run({{"x", Ramp(3)}})[0].second, AffineOf(Ramp(3)));
  EXPECT_THROW(executor.Run({{"x", Ramp(41)}}), Error);
  const Artifacts again = MakeArtifacts(*plan);
  EXPECT_EQ(again.graph, parts.graph);
  EXPECT_EQ(TextOf(*again.library), TextOf(*parts.library));
  EXPECT_EQ(again.parameters, parts.parameters);
}

// y = (x, x) written as one tensor by two steps, read as [2, 5] and as its second half.
TEST_F(ArtifactsTest, ViewsAndCopiesComeBack) {
  PlanMaker m;
  const uint32_t x = m.Input("x", {1, 5});
  const uint32_t c = m.Constant(Tensor::Of<float>({7}, {0, 0, 1, 2, 3, 4, 5}));
  const uint32_t c_end = m.Value(Place::kConstant, 0, {5}, 8);
  const uint32_t first = m.Arena({1, 5}, 0, 2);
  m.plan.storages[0].bytes = 40;
  const uint32_t second = m.Value(Place::kArena, 0, {1, 5}, 20);
  const uint32_t whole = m.Value(Place::kArena, 0, {2, 5});
  const uint32_t y = m.Output("y", {2, 5});
  const uint32_t c_out = m.Output("c", {7});
  m.Step(0, {x, first}, "twice");
  m.Step(kNone, {x, second}, "copy");
  m.Step(1, {whole, c_end, y}, "add");
  m.Step(kNone, {c, c_out}, "copy");
  m.plan.code = {"test", {}, "not really code", {0, 4}};
  const Artifacts parts = MakeArtifacts(m.plan);
  const Json graph = Json::parse(parts.graph);
  const auto node = [&](size_t i) { return graph["nodes"][i].dump(); };
  EXPECT_NE(node(3).find("__copy"), std::string::npos) << node(3);
  EXPECT_NE(node(4).find("__nop"), std::string::npos) << node(4);
  EXPECT_EQ(graph["nodes"][4]["inputs"].dump(), "[[2,0,0],[3,0,0]]") << "both parts of the whole";
  EXPECT_EQ(graph["nodes"][5]["inputs"].dump(), "[[1,0,0]]") << "a part of the constant";
  EXPECT_EQ(parts.parameters[0].first, "p0") << "for want of another name";
  const auto plan = PlanOf(parts);
  ASSERT_EQ(plan->steps.size(), 4u);
  EXPECT_EQ(MakeArtifacts(*plan).graph, parts.graph);
  const Executor executor(TestKernels(), plan, {.threads = 1, .poison = true});
  const NamedTensors outputs = executor.Run({{"x", Ramp(1, 1)}});
  EXPECT_EQ(outputs[0].second, Tensor::Of<float>({2, 5}, {3, 6, 9, 12, 15, 2, 4, 6, 8, 10}));
  EXPECT_EQ(outputs[1].second, parts.parameters[0].second);
}

#if defined(__x86_64__)
TEST_F(ArtifactsTest, TheLibraryIsOneForEverybody) {
  const Artifacts parts = MakeArtifacts(*DoublePlan());
  WriteFile(folder_ / "double.so", TextOf(*parts.library));
  void* library = dlopen((folder_ / "double.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto kernel = reinterpret_cast<KernelFunction>(dlsym(library, "fused_double"));
  ASSERT_NE(kernel, nullptr) << dlerror();
  EXPECT_EQ(dlsym(library, "fused_triple"), nullptr);
  float x[3] = {1, 2, 3.5}, y[3] = {};
  const int64_t shape = 3;
  const KernelBuffer buffers[2] = {{x, &shape}, {y, &shape}};
  kernel(buffers, nullptr);
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[2], 7);
  dlclose(library);
}

TEST_F(ArtifactsTest, ManyKernelsAreFoundByName) {
  PlanMaker m;
  const uint32_t x = m.Input("x", {Dim::Symbol("N")});
  m.plan.code = DoubleCode();
  const std::string code = m.plan.code.bytes;
  for (uint32_t k = 0; k < 40; ++k) {
    const uint32_t y = m.Output(StrCat("y", k), {Dim::Symbol("N")});
    m.Step(k, {x, y}, k % 3 == 0 ? "double" : StrCat("double.", k));
    m.plan.code.entries.resize(k + 1);
    m.plan.code.entries[k] = k * 64;
    m.plan.code.bytes.resize(size_t{k} * 64);
    m.plan.code.bytes += code;
  }
  SavePlan(m.plan, folder_ / "many.json");
  void* library = dlopen((folder_ / "many.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto* begin = static_cast<const char*>(dlsym(library, "fused_double"));
  for (uint32_t k = 0; k < 40; ++k) {
    const std::string name = k == 0       ? "fused_double"
                             : k % 3 == 0 ? StrCat("fused_double_", k / 3)
                                          : StrCat("fused_double_", k);
    const auto* at = static_cast<const char*>(dlsym(library, name.c_str()));
    if (at == nullptr) continue;  // the name was taken: another number follows
    EXPECT_EQ((at - begin) % 64, 0) << name;
  }
  dlclose(library);
  const Executor executor = LoadExecutor(folder_ / "many.json", {.threads = 1});
  for (const auto& [name, y] : executor.Run({{"x", Tensor::Of<float>({2}, {1, 4})}})) {
    EXPECT_EQ(y, Tensor::Of<float>({2}, {2, 8})) << name;
  }
}

TEST_F(ArtifactsTest, FilesGiveTheSameBits) {
  SavePlan(*DoublesPlan(), folder_ / "doubles.lx");
  SavePlan(*DoublesPlan(), folder_ / "doubles.json");
  const NamedTensors inputs = {{"x", Tensor::Of<float>({3}, {1, -2, 3.5})}};
  const NamedTensors wanted = LoadExecutor(folder_ / "doubles.lx").Run(inputs);
  EXPECT_EQ(LoadExecutor(folder_ / "doubles.json").Run(inputs), wanted);
  std::filesystem::rename(folder_ / "doubles.so", folder_ / "kernels.bin");
  const ArtifactFiles files{folder_ / "doubles.json", folder_ / "kernels.bin"};
  EXPECT_EQ(LoadExecutor(files).Run(inputs), wanted);
  VerifyFile(folder_ / "doubles.lx");
}
#endif

// ---- what is wrong with a graph ----

TEST_F(ArtifactsTest, SaysWhatIsWrongWithAGraph) {
  const auto text = [&](std::string graph) {
    Artifacts artifacts = MakeArtifacts(Affine());
    artifacts.graph = std::move(graph);
    return ErrorOf(artifacts);
  };
  EXPECT_EQ(text(""), "artifact/graph: this is not JSON");
  EXPECT_EQ(text("{"), "artifact/graph: this is not JSON");
  EXPECT_EQ(text("[]"), "artifact/graph: this is not a graph");
  EXPECT_EQ(text("{}"), "artifact/graph: 'attrs' is missing");
  EXPECT_EQ(text(std::string(100000, '[')), "artifact/graph: it is nested too deeply");
  EXPECT_EQ(text(R"({"nodes":[],"arg_nodes":[],"heads":[],"node_row_ptr":[0],"attrs":{}})"),
            "artifact/graph: this is a graph, but not of a compiled program of Lathe");
  EXPECT_EQ(ChangedGraph([](Json&) {}), "no error");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["lathe_version"][1] = 1; }),
            "artifact/graph: the graph has version 1; this library reads version 5");
  const auto constraint = [](Json& g) -> Json& { return g["attrs"]["constraints"][1][0]; };
  EXPECT_EQ(ChangedGraph([&](Json& g) { constraint(g)["kind"] = "less"; }),
            "artifact/graph: unknown kind of constraint 'less'");
  EXPECT_EQ(ChangedGraph([&](Json& g) { constraint(g)["sizes"].erase(0); }),
            "artifact/graph: a constraint is about two sizes");
  EXPECT_EQ(ChangedGraph([&](Json& g) { constraint(g)["sizes"][0] = "40,N"; }),
            "artifact/graph: 'sizes' is not a single dim");
  EXPECT_EQ(ChangedGraph([&](Json& g) { constraint(g)["sizes"][0] = "M"; }),
            "plan/dim: constraint 0 has dim M, but M is not a symbol of the plan");
  EXPECT_EQ(ChangedGraph([&](Json& g) { constraint(g) = 7; }),
            "artifact/graph: a constraint is not an object");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"].erase("constraints"); }),
            "artifact/graph: 'constraints' is missing");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"][3]["inputs"][0][0] = 3; }),
            "artifact/graph: it reads node 3, which is not before it");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"][3]["inputs"][0][1] = 1; }),
            "artifact/graph: node 2 has no output 1");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"][3]["inputs"][0][0] = -1; }),
            "artifact/graph: 'inputs' is not a number from 0 on, or too large");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"][3]["op"] = "conv2d"; }),
            "artifact/graph: unknown kind of node 'conv2d'");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"][3]["attrs"]["num_inputs"] = "2"; }),
            "artifact/graph: 'num_inputs' is not 1");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"][3]["attrs"]["func_name"] = "fused_twic"; }),
            "artifact/library: the library has no kernel 'fused_twic'");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["nodes"].erase(4); }),
            "artifact/graph: 'node_row_ptr' does not fit to the nodes");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["node_row_ptr"][2] = 0; }),
            "artifact/graph: 'node_row_ptr' does not ascend");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["arg_nodes"][1] = 2; }),
            "artifact/graph: 'arg_nodes' are not the nodes of kind 'null'");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["heads"][0][0] = 5; }),
            "artifact/graph: it reads node 5, which is not before it");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["heads"][0][0] = 3; }),
            "plan/port: output 'z' is a value that lies elsewhere than in the caller's memory");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["shape"][1][0][1] = 6; }),
            "artifact/graph: 'shape' and 'dims' \"N,5\" contradict each other");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["dims"][1][0] = "N 5"; }),
            "artifact/graph: 'dims' \"N 5\": a comma is missing");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["dltype"][1][0] = "float33"; }),
            "artifact/graph: unknown type 'float33'");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["dltype"][1].erase(0); }),
            "artifact/graph: 'dltype' has 4 items; there should be 5");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["storage_id"][1][0] = 5; }),
            "artifact/graph: unknown storage 5");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["storage_id"][1][1] = 3; }),
            "artifact/graph: argument 'row' is neither an input nor the next parameter");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["storage_place"][1].push_back("parameter"); }),
            "artifact/graph: a storage of a parameter has no node");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["symbol_axis"][1][0] = 1; }),
            "plan/symbol: axis 1 of input 'x' is not dim N");
  EXPECT_EQ(ChangedGraph([](Json& g) { g["attrs"]["arena_end"][1][0] = 0; }),
            "plan/step: it uses value 2, whose storage 0 lives from step 0 to 0");
}

// Numbers, texts and lists replaced at random: errors only, and no absurd allocations.
TEST_F(ArtifactsTest, HostileGraphsDoNoHarm) {
  const Artifacts good = MakeArtifacts(Affine());
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  const Json odd[] = {0,
                      1,
                      -1,
                      4294967295U,
                      1e300,
                      "",
                      "N",
                      "mod(N, 0)",
                      Json::array(),
                      Json::object(),
                      nullptr,
                      18446744073709551615U,
                      9223372036854775807};
  int loaded = 0;
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    Json graph = Json::parse(good.graph);
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      Json* at = &graph;
      while (at->is_structured() && !at->empty() && (at == &graph || below(8) > 0)) {
        at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(below(at->size())));
      }
      *at = odd[below(std::size(odd))];
    }
    Artifacts artifacts = good;
    artifacts.graph = graph.dump();
    TakeLargestAllocation();
    loaded += ErrorOf(artifacts) == "no error" ? 1 : 0;
    ASSERT_LT(TakeLargestAllocation(), 1U << 20) << artifacts.graph;
  }
  EXPECT_GT(loaded, 0) << "changes of labels are harmless";
  EXPECT_LT(loaded, kRounds);
}

// ---- what is wrong with a library ----

TEST_F(ArtifactsTest, EveryTruncatedLibraryIsAnError) {
  Artifacts artifacts = MakeArtifacts(Affine());
  const std::string good = TextOf(*artifacts.library);
  for (size_t size = 0; size < good.size(); ++size) {
    artifacts.library = BufferOf(good.substr(0, size));
    EXPECT_NE(ErrorOf(artifacts), "no error") << size;
  }
}

TEST_F(ArtifactsTest, ADamagedByteIsFoundOrHarmless) {
  const Artifacts good = MakeArtifacts(Affine());
  const std::string bytes = TextOf(*good.library);
  size_t found = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0 && i % 8 != 0) continue;  // there are many
    Artifacts artifacts = good;
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    artifacts.library = BufferOf(damaged);
    if (ErrorOf(artifacts) != "no error") {
      ++found;
    } else {
      EXPECT_EQ(PlanOf(artifacts)->code.bytes, "not really code") << i;
      EXPECT_EQ(PlanOf(artifacts)->code.entries, (std::vector<uint64_t>{0, 4})) << i;
    }
  }
  EXPECT_GT(found, 100u) << "sections, symbols, names, note and code";
}

// A table of names that every symbol reads as a whole would take its square in memory.
TEST_F(ArtifactsTest, NamesThatOverlapAreAnError) {
  Artifacts artifacts = MakeArtifacts(Affine());
  std::string bytes = TextOf(*artifacts.library);
  const size_t names = bytes.find(std::string("\0fused_twice\0fused_add\0", 23));
  ASSERT_NE(names, std::string::npos);
  const uint32_t second = 13;  // where its name begins
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&second), 4), 0);
  ASSERT_LT(at, names);
  bytes[at] = 1;
  artifacts.library = BufferOf(bytes);
  EXPECT_EQ(ErrorOf(artifacts), "artifact/library: its names overlap");
}

TEST_F(ArtifactsTest, TheLibraryOfAnotherBuildIsAnError) {
  Plan plan = Affine();
  Artifacts artifacts = MakeArtifacts(plan);
  plan.code.target = "better";
  artifacts.library = MakeArtifacts(plan).library;
  EXPECT_EQ(ErrorOf(artifacts), "artifact/library: graph and library are not of one build");
  artifacts.library = BufferOf("LATHE-LX");
  EXPECT_EQ(ErrorOf(artifacts), "artifact/library: this is not a shared library");
  artifacts.library = BufferOf(ReadFile(LATHE_BUILD_DIR "/lib/liblathe_runtime.so"));
  EXPECT_EQ(ErrorOf(artifacts), "artifact/library: it has no section '.note.lathe'");
}

TEST_F(ArtifactsTest, AProgramForABetterProcessorIsRefused) {
  Plan plan = Affine();
  plan.code.features = {"fma", "no_such_feature"};
  SavePlan(plan, folder_ / "fast.json");
  try {
    LoadExecutor(folder_ / "fast.json");
    FAIL() << "it was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.id(), "run/processor");
    EXPECT_EQ(e.where(), folder_ / "fast.json");
  }
}

// ---- parameters ----

TEST_F(ArtifactsTest, ParametersAreCheckedByName) {
  const Artifacts good = MakeArtifacts(Affine());
  const auto with = [&](NamedTensors parameters) {
    Artifacts artifacts = good;
    artifacts.parameters = std::move(parameters);
    return ErrorOf(artifacts);
  };
  const Tensor row = good.parameters[0].second;
  EXPECT_EQ(with({}), "artifact/parameter: parameter 'row' : f32[5] is missing");
  EXPECT_EQ(with({{"row", row}, {"rows", row}}),
            "artifact/parameter: the program has no parameter 'rows'");
  EXPECT_EQ(with({{"row", row}, {"row", row}}),
            "artifact/parameter: parameter 'row' is given twice");
  EXPECT_EQ(with({{"row", Tensor(ElementType::kF32, {5, 1})}}),
            "artifact/parameter: parameter 'row' is f32[5,1]; expected f32[5]");
  EXPECT_EQ(with({{"row", Tensor(ElementType::kF16, {5})}}),
            "artifact/parameter: parameter 'row' is f16[5]; expected f32[5]");
}

TEST_F(ArtifactsTest, OtherParametersTakeEffect) {
  const Tensor zeros(ElementType::kF32, {5});
  const auto plan = WithParameters(Affine(), {{"row", zeros}});
  const NamedTensors outputs =
      Executor(TestKernels(), plan, {.threads = 1}).Run({{"x", Ramp(1, 1)}});
  EXPECT_EQ(outputs[0].second, Tensor::Of<float>({1, 5}, {4, 8, 12, 16, 20}));
  EXPECT_EQ(WithParameters(Affine(), {})->constants, Affine().constants);
  EXPECT_THROW((void)WithParameters(Affine(), {{"column", zeros}}), Error);
}

TEST_F(ArtifactsTest, ParametersOfAnotherBuildAreAnError) {
  Plan plan = Affine();
  SavePlan(plan, folder_ / "one.json");
  plan.code.bytes[0] = 'N';
  SavePlan(plan, folder_ / "two.json");
  EXPECT_NO_THROW(LoadPlan(folder_ / "one.json"));
  const ArtifactFiles mixed{folder_ / "one.json", {}, folder_ / "two.safetensors"};
  try {
    LoadPlan(mixed);
    FAIL() << "it was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.id(), "artifact/parameter");
    EXPECT_EQ(e.where(), folder_ / "two.safetensors");
  }
}

TEST_F(ArtifactsTest, DamagedParametersAreFoundWhenAsked) {
  const std::string graph = folder_ / "affine.json", path = folder_ / "affine.safetensors";
  SavePlan(Affine(), graph);
  VerifyFile(graph);
  std::string bytes = ReadFile(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteFile(path, bytes);
  EXPECT_NO_THROW((void)LoadPlan(graph));
  try {
    VerifyFile(graph);
    FAIL() << "nothing was found";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "the parameters are damaged");
    EXPECT_EQ(e.where(), path);
  }
  WriteSafeTensors(path, {ReadSafeTensors(path).tensors, {}});  // of a training, without checksum
  EXPECT_NO_THROW(VerifyFile(graph));
}

TEST_F(ArtifactsTest, PartsAreReplacedTogetherOrNotAtAll) {
  const std::string graph = folder_ / "affine.json";
  const ArtifactFiles parts = Complete({.graph = graph});
  SavePlan(Affine(), graph);
  const auto contents = [&] {
    return std::vector{ReadFile(parts.graph), ReadFile(parts.library), ReadFile(parts.parameters)};
  };
  const std::vector<std::string> before = contents();
  Plan other = Affine();
  other.code.bytes += " that is longer";
  std::filesystem::rename(parts.library, folder_ / "kept.so");
  MakeDirectory(parts.library);
  EXPECT_THROW(SavePlan(other, graph), Error);
  std::filesystem::remove(parts.library);
  std::filesystem::rename(folder_ / "kept.so", parts.library);
  EXPECT_EQ(contents(), before);
  SavePlan(other, graph);
  EXPECT_NE(contents()[1], before[1]);
  VerifyFile(graph);
}

TEST_F(ArtifactsTest, NamesMustBeText) {
  Plan plan = Affine();
  plan.constant_names = {"\xff"};
  try {
    MakeArtifacts(plan);
    FAIL() << "it was written";
  } catch (const Error& e) {
    EXPECT_EQ(e.id(), "artifact/name");
  }
}

}  // namespace
}  // namespace lathe::runtime
