#include <cstring>

#include "lathe/runtime/kernel_error.h"
#include "test/unit/codegen/kernel_util.h"

// Kernels whose accesses are checked: those out of bounds are not made, and are told.
namespace lathe::codegen {
namespace {

constexpr const char* kI = "v_tensor<[], i64>";

// A kernel of x and y that first asks for `before`, then, for each i in 0 .. 3, runs `body`; it
// returns what it wrote to %o.
std::string Kernel(const std::string& x, const std::string& o, const std::string& body,
                   bool parallel = false) {
  return StrCat("program {\n builtin.func() {name = \"k\"} ({\n ^(%x: v_", x, ", %n: ", kI,
                "):\n %o = loop.alloc() : () -> ", o,
                "\n loop.for() {extent = 3, parallel = ", parallel ? "true" : "false",
                "} ({\n ^(%i: ", kI, "):\n", body,
                "\n cf.yield()\n })\n %v = builtin.to_vtensor(%o) : (", o, ") -> v_", o,
                "\n builtin.return(%v) : (v_", o, ") -> ()\n })\n}\n");
}

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  // What a call of the kernel leaves as its status, on every target, alone and with a team. Memory
  // around the buffers stays as it is.
  struct Fault {
    int64_t failed;
    std::string access;
    int64_t offset, bytes;
    bool operator==(const Fault&) const = default;
  };
  Fault Run(const std::string& text, const Tensor& x, int64_t n, const Tensor& out) {
    Program program = ParseProgram(context_, text, {.file_locations = false});
    VerifyOrThrow(program);
    const KernelSource source{
        .name = "k", .body = FirstFunction(program)->region(0).front(), .check_accesses = true};
    std::optional<Fault> first;
    for (const Target* target : RunnableTargets()) {
      const auto library = CodeGenerator::Get().Compile({&source, 1}, *target);
      EXPECT_TRUE(library->image().Find("k").checks);
      runtime::WorkerTeam team(3);
      for (KernelTeam* t : {static_cast<KernelTeam*>(nullptr), team.for_kernels()}) {
        const Fault fault = Call(*library, x, n, out, t);
        if (!first) first = fault;
        EXPECT_EQ(fault.failed, first->failed) << target->name;
        EXPECT_EQ(fault.access, first->access) << target->name;
        EXPECT_EQ(fault.bytes, first->bytes) << target->name;
      }
    }
    return *first;
  }

  static Fault Call(const KernelLibrary& library, const Tensor& x, int64_t n, const Tensor& out,
                    KernelTeam* team) {
    constexpr size_t kGuard = 1024;
    std::vector<std::byte> memory(out.byte_size() + 2 * kGuard, std::byte{0x5a});
    const Tensor number = Tensor::Scalar<int64_t>(n);
    KernelStatus status{};
    const int64_t status_shape[] = {sizeof status};
    const std::vector<KernelBuffer> buffers{
        {const_cast<std::byte*>(x.raw()), x.shape().data()},
        {const_cast<std::byte*>(number.raw()), number.shape().data()},
        {memory.data() + kGuard, out.shape().data()},
        {&status, status_shape}};
    library.Find("k")(buffers.data(), team);
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(memory[i], std::byte{0x5a});
      EXPECT_EQ(memory[kGuard + out.byte_size() + i], std::byte{0x5a});
    }
    if (status.failed == 0) return {0, "", 0, 0};
    return {status.failed, status.access, status.index, status.extent};
  }

  IrContext context_;
  const Tensor x_ = RandomTensor(ElementType::kF32, {3, 8}, 1);
  const Tensor o_ = Tensor(ElementType::kF32, {3, 8});
};

constexpr const char* kX = "tensor<[3, 8], f32>";
constexpr const char* kMemory = "tensor<[3, 8], f32>";

// "(memory, live or value, ..., i64, i64)" as it is written.
std::string Load(const std::string& attributes, const std::string& live, const std::string& at,
                 const std::string& result) {
  return StrCat(" %a = loop.load(%x, ", live, ", %i, ", at, ") {", attributes, "} : (v_", kX, ", ",
                live == "none" ? "none" : kI, ", ", kI, ", ", kI, ") -> ", result, "\n");
}
std::string Store(const std::string& attributes, const std::string& live, const std::string& value,
                  const std::string& at, const std::string& type) {
  return StrCat(" %s = loop.store_(%o, ", value, ", ", live, ", %i, ", at, ") {", attributes,
                "} : (", kMemory, ", ", type, ", ", live == "none" ? "none" : kI, ", ", kI, ", ",
                kI, ") -> ", kMemory, "\n");
}
std::string Number(const std::string& name, int64_t value) {
  return StrCat(" ", name, " = loop.index() {expr = dim<", value, ">} : () -> ", kI, "\n");
}
const std::string kN =
    StrCat(" %z = loop.index() {expr = dim<0>} : () -> ", kI,
           "\n %m = loop.load(%n, none) {lanes = 0} : (", kI, ", none) -> ", kI, "\n");

TEST_F(AccessTest, Elements) {
  const std::string text =
      Kernel(kX, kMemory,
             StrCat(kN, Load("lanes = 0", "none", "%m", "v_tensor<[], f32>"),
                    Store("axis = -1", "none", "%a", "%z", "v_tensor<[], f32>")));
  EXPECT_EQ(Run(text, x_, 0, o_).failed, 0);
  EXPECT_EQ(Run(text, x_, 7, o_).failed, 0);
  EXPECT_EQ(Run(text, x_, 8, o_),
            (Fault{KernelStatus::kAccess, "loop.load: input 0, v_tensor<[3, 8], f32>", 96, 96}));
  EXPECT_EQ(Run(text, x_, -1, o_),
            (Fault{KernelStatus::kAccess, "loop.load: input 0, v_tensor<[3, 8], f32>", -4, 96}));
  EXPECT_EQ(Run(text, x_, INT64_MAX, o_).failed, KernelStatus::kAccess);
  EXPECT_EQ(Run(text, x_, INT64_MIN, o_).failed, 0) << "4 * 2^63 wraps to the begin";
}

TEST_F(AccessTest, Stores) {
  const std::string text =
      Kernel(kX, kMemory,
             StrCat(kN, Load("lanes = 0", "none", "%z", "v_tensor<[], f32>"),
                    Store("axis = -1", "none", "%a", "%m", "v_tensor<[], f32>")));
  EXPECT_EQ(Run(text, x_, 7, o_).failed, 0);
  EXPECT_EQ(Run(text, x_, 8, o_).access, "loop.store_: output 0, tensor<[3, 8], f32>");
  EXPECT_EQ(Run(text, x_, -1, o_).offset, -4);
}

TEST_F(AccessTest, VectorsEndWithinTheMemory) {
  for (const bool parallel : {false, true}) {
    const std::string text =
        Kernel(kX, kMemory,
               StrCat(kN, Load("lanes = 4", "none", "%m", "v_tensor<[4], f32>"),
                      Store("axis = -1", "none", "%a", "%m", "v_tensor<[4], f32>")),
               parallel);
    EXPECT_EQ(Run(text, x_, 4, o_).failed, 0);
    const Fault fault = Run(text, x_, 5, o_);
    EXPECT_EQ(fault.access, "loop.load: input 0, v_tensor<[3, 8], f32>");
    EXPECT_EQ(fault.offset, 84);  // 12 bytes are left
  }
}

// Lanes that are not live are not accessed.
TEST_F(AccessTest, LiveLanes) {
  for (const auto& [live, last] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 7}, {3, 5}, {9, 4}}) {
    const std::string text =
        Kernel(kX, kMemory,
               StrCat(kN, Number("%l", live), Load("lanes = 4", "%l", "%m", "v_tensor<[4], f32>"),
                      Store("axis = -1", "%l", "%a", "%z", "v_tensor<[4], f32>")));
    EXPECT_EQ(Run(text, x_, last, o_).failed, 0) << live;
    EXPECT_EQ(Run(text, x_, last + 1, o_).offset, 4 * (17 + last)) << live;
  }
  const std::string none =
      Kernel(kX, kMemory,
             StrCat(kN, Number("%l", 0), Load("lanes = 4", "%l", "%m", "v_tensor<[4], f32>"),
                    Store("axis = -1", "%l", "%a", "%m", "v_tensor<[4], f32>")));
  EXPECT_EQ(Run(none, x_, 1000, o_).failed, 0);
}

TEST_F(AccessTest, Strides) {
  struct Strided {
    int64_t stride, lanes, last;
  };
  for (const auto& [stride, lanes, last] : {Strided{2, 4, 1}, {3, 2, 4}, {5, 2, 2}}) {
    const std::string type = StrCat("v_tensor<[", lanes, "], f32>");
    const std::string attributes = StrCat("lanes = ", lanes, ", stride = ", stride);
    const std::string text = Kernel(kX, kMemory,
                                    StrCat(kN, Load(attributes, "none", "%m", type),
                                           Store("axis = -1", "none", "%a", "%z", type)));
    EXPECT_EQ(Run(text, x_, last, o_).failed, 0) << stride;
    EXPECT_EQ(Run(text, x_, last + 1, o_).failed, KernelStatus::kAccess) << stride;
  }
}

// Lane 2 along the first axis of three rows is out of bounds from the second row on.
TEST_F(AccessTest, GatheredLanes) {
  const std::string axis =
      Kernel(kX, kMemory,
             StrCat(kN, Load("lanes = 2, axis = 0", "none", "%m", "v_tensor<[2], f32>"),
                    Store("axis = -1", "none", "%a", "%z", "v_tensor<[2], f32>")));
  EXPECT_EQ(Run(axis, x_, 0, o_).offset, 4 * 24);  // i = 2, lane 1
  const std::string scatter =
      Kernel(kX, kMemory,
             StrCat(kN, Number("%l", 1), Load("lanes = 2", "none", "%z", "v_tensor<[2], f32>"),
                    Store("axis = 0", "%l", "%a", "%m", "v_tensor<[2], f32>")));
  EXPECT_EQ(Run(scatter, x_, 7, o_).failed, 0);
  EXPECT_EQ(Run(scatter, x_, 8, o_).access, "loop.store_: output 0, tensor<[3, 8], f32>");
}

TEST_F(AccessTest, IndicesOfGather) {
  const std::string text =
      Kernel(kX, kMemory,
             StrCat(" %z = loop.index() {expr = dim<0>} : () -> ", kI,
                    "\n %c = builtin.constant() {value = tensor<[4], i64> [0, 3, 9, 2]} : () -> "
                    "v_tensor<[4], i64>\n %l = loop.load(%n, none) : (",
                    kI, ", none) -> ", kI, "\n %a = loop.gather(%x, %l, %i, %c) : (v_", kX, ", ",
                    kI, ", ", kI, ", v_tensor<[4], i64>) -> v_tensor<[4], f32>\n",
                    Store("axis = -1", "none", "%a", "%z", "v_tensor<[4], f32>")));
  EXPECT_EQ(Run(text, x_, 2, o_).failed, 0);
  EXPECT_EQ(Run(text, x_, 4, o_),
            (Fault{KernelStatus::kAccess, "loop.gather: input 0, v_tensor<[3, 8], f32>", 100, 96}));
}

// What a call says of its buffers counts, not what the types say.
TEST_F(AccessTest, SmallerBuffersThanTypes) {
  const std::string text =
      Kernel(kX, kMemory,
             StrCat(kN, Load("lanes = 4", "none", "%m", "v_tensor<[4], f32>"),
                    Store("axis = -1", "none", "%a", "%m", "v_tensor<[4], f32>")));
  EXPECT_EQ(Run(text, RandomTensor(ElementType::kF32, {3, 4}, 1), 0, o_).bytes, 48);
  EXPECT_EQ(Run(text, x_, 0, Tensor(ElementType::kF32, {2, 8})).access,
            "loop.store_: output 0, tensor<[3, 8], f32>");
  EXPECT_EQ(Run(text, RandomTensor(ElementType::kF32, {0, 4}, 1), 0, o_).bytes, 0);
}

TEST_F(AccessTest, MemoryOfTheKernel) {
  const std::string stack = StrCat(
      kN,
      " %t = loop.alloc() : () -> tensor<[5], f32>\n %a = loop.load(%t, none, %m) : "
      "(tensor<[5], f32>, none, ",
      kI, ") -> v_tensor<[], f32>\n", Store("axis = -1", "none", "%a", "%z", "v_tensor<[], f32>"));
  for (const bool parallel : {false, true}) {
    EXPECT_EQ(Run(Kernel(kX, kMemory, stack, parallel), x_, 4, o_).failed, 0);
    EXPECT_EQ(Run(Kernel(kX, kMemory, stack, parallel), x_, 5, o_).access,
              "loop.load: memory on the stack, tensor<[5], f32>");
  }
  const std::string table = StrCat(
      kN,
      " %t = builtin.constant() {value = tensor<[3], f32> [1, 2, 3]} : () -> "
      "v_tensor<[3], f32>\n %a = loop.load(%t, none, %m) : (v_tensor<[3], f32>, none, ",
      kI, ") -> v_tensor<[], f32>\n", Store("axis = -1", "none", "%a", "%z", "v_tensor<[], f32>"));
  EXPECT_EQ(Run(Kernel(kX, kMemory, table), x_, 2, o_).failed, 0);
  EXPECT_EQ(Run(Kernel(kX, kMemory, table), x_, 3, o_).access,
            "loop.load: a constant, v_tensor<[3], f32>");
}

// No size that is zero ends the process.
TEST_F(AccessTest, DivisionByZero) {
  for (const char* expr : {"floordiv(7, d0)", "mod(7, d0)", "ceildiv(7, d0)"}) {
    const std::string text =
        Kernel(kX, kMemory,
               StrCat(kN, " %d = loop.index(%m) {expr = dim<", expr, ">} : (", kI, ") -> ", kI,
                      "\n", Load("lanes = 0", "none", "%d", "v_tensor<[], f32>"),
                      Store("axis = -1", "none", "%a", "%z", "v_tensor<[], f32>")));
    EXPECT_EQ(Run(text, x_, 0, o_).failed, 0) << expr;
    EXPECT_EQ(Run(text, x_, 2, o_).failed, 0) << expr;
  }
  for (const char* expr : {"floordiv(d0, d1)", "mod(d0, d1)", "ceildiv(d0, d1)"}) {
    const std::string text =
        Kernel(kX, kMemory,
               StrCat(kN, " %d = loop.index(%m, %z) {expr = dim<", expr, ">} : (", kI, ", ", kI,
                      ") -> ", kI, "\n", Load("lanes = 0", "none", "%z", "v_tensor<[], f32>"),
                      Store("axis = -1", "none", "%a", "%d", "v_tensor<[], f32>")));
    EXPECT_EQ(Run(text, x_, 7, o_).failed, 0) << expr;
  }
}

TEST_F(AccessTest, Tiles) {
  const std::string tile = "v_tensor<[2, 4], f32>";
  const std::string text =
      Kernel(kX, kMemory,
             StrCat(kN, " %a = loop.tile_load(%x, %z, %z) {rows = 2, columns = 4} : (v_", kX, ", ",
                    kI, ", ", kI, ") -> ", tile, "\n %s = loop.tile_store_(%o, %a, %m, %z) : (",
                    kMemory, ", ", tile, ", ", kI, ", ", kI, ") -> ", kMemory, "\n"));
  EXPECT_EQ(Run(text, x_, 1, o_).failed, 0);
  EXPECT_EQ(
      Run(text, x_, 2, o_),
      (Fault{KernelStatus::kAccess, "loop.tile_store_: output 0, tensor<[3, 8], f32>", 96, 96}));
}

TEST_F(AccessTest, Errors) {
  KernelStatus status{};
  status.failed = KernelStatus::kAccess;
  status.access = "loop.load: input 0, v_tensor<[3, 8], f32>";
  status.index = 96;
  status.extent = 96;
  const Error error = runtime::KernelError(status, "conv relu", "m.onnx: node 'c'");
  EXPECT_EQ(error.code(), ErrorCode::kInternal);
  EXPECT_EQ(error.id(), "run/out-of-bounds");
  EXPECT_EQ(error.where(), "m.onnx: node 'c'");
  const std::string text = error.Render();
  EXPECT_NE(text.find("byte 96"), std::string::npos) << text;
  EXPECT_NE(text.find("input 0, v_tensor<[3, 8], f32>"), std::string::npos) << text;
  EXPECT_NE(text.find("conv relu"), std::string::npos) << text;
}

}  // namespace
}  // namespace lathe::codegen
