#include "src/driver/collective_kernel.h"

#include <cstring>
#include <map>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/dist/collective.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/support/background_communication.h"
#include "lathe/support/collectives.h"
#include "lathe/support/error.h"
#include "lathe/transform/multi_devices.h"

namespace lathe {
namespace {

// An operand or result as the kernel is given it.
struct KernelPort {
  ElementType element;
  size_t rank;

  int64_t Count(const KernelBuffer& buffer) const {
    int64_t count = 1;
    for (size_t i = 0; i < rank; ++i) count *= buffer.shape[i];
    return count;
  }
  size_t Bytes(const KernelBuffer& buffer) const {
    return StorageBytes(element, static_cast<size_t>(Count(buffer)));
  }
};

// What an operation says, without the operation.
struct Collective {
  std::string name;
  std::vector<KernelPort> inputs, outputs;
  int64_t nranks = 1;
  int64_t peer = 0;  // root, or the rank to send to or receive from
  Reduction reduction = Reduction::kSum;
  bool part = false;
};

// A call.
struct Call {
  const Collective& op;
  const KernelBuffer* in;
  const KernelBuffer* out;

  Communicator& ranks() const { return CommunicatorOf(op.nranks); }
  ElementType element() const { return op.inputs[0].element; }
  int64_t Count() const { return op.inputs[0].Count(in[0]); }
  size_t Bytes(size_t i = 0) const { return op.inputs[i].Bytes(in[i]); }
  std::vector<const void*> Inputs() const {
    std::vector<const void*> all;
    for (size_t i = 0; i < op.inputs.size(); ++i) all.push_back(in[i].data);
    return all;
  }
  std::vector<void*> Outputs() const {
    std::vector<void*> all;
    for (size_t i = 0; i < op.outputs.size(); ++i) all.push_back(out[i].data);
    return all;
  }
  void Pass(size_t i) const {
    if (Bytes(i) > 0) std::memcpy(out[i].data, in[i].data, Bytes(i));
  }
};

void RunAllReduce(const Call& c) {
  AllReduce(c.ranks(), c.op.reduction, c.element(), c.Count(), c.Inputs(), c.Outputs(), c.op.name);
}

void RunBucket(const Call& c) {
  std::vector<BucketPart> parts;
  for (size_t i = 0; i < c.op.inputs.size(); ++i) {
    parts.push_back({c.op.inputs[i].Count(c.in[i]), c.in[i].data, c.out[i].data});
  }
  AllReduceBucket(c.ranks(), c.op.reduction, c.element(), parts, c.op.name);
}

void RunReduce(const Call& c) {
  RunAllReduce(c);
  const int64_t root = c.op.peer / static_cast<int64_t>(c.op.inputs.size());
  if (root != c.ranks().rank() && c.Bytes() > 0) std::memset(c.out[0].data, 0, c.Bytes());
}

void RunBroadcast(const Call& c) {
  const auto root = static_cast<int>(c.op.peer / static_cast<int64_t>(c.op.outputs.size()));
  if (root == c.ranks().rank()) c.Pass(0);
  Broadcast(c.ranks(), root, c.out[0].data, c.Bytes(), c.op.name);
  for (size_t i = 1; i < c.op.outputs.size() && c.Bytes() > 0; ++i) {
    std::memcpy(c.out[i].data, c.out[0].data, c.Bytes());
  }
}

void RunAllGather(const Call& c) {
  AllGather(c.ranks(), c.in[0].data, c.Bytes(), c.out[0].data, c.op.name);
}

void RunReduceScatter(const Call& c) {
  ReduceScatter(c.ranks(), c.op.reduction, c.element(), c.op.outputs[0].Count(c.out[0]), c.Inputs(),
                c.out[0].data, c.op.name);
}

void RunAllToAll(const Call& c) {
  AllToAll(c.ranks(), c.in[0].data, c.Bytes() / static_cast<size_t>(c.op.nranks), c.out[0].data,
           c.op.name);
}

void RunSend(const Call& c) {
  c.Pass(0);
  if (c.op.peer == c.ranks().rank()) return;
  const Communicator::Send send{static_cast<int>(c.op.peer), c.in[0].data, c.Bytes()};
  c.ranks().Exchange({&send, 1}, {}, c.op.name);
}

void RunRecv(const Call& c) {
  if (c.op.peer == c.ranks().rank()) return c.Pass(0);
  const Communicator::Receive receive{static_cast<int>(c.op.peer), c.out[0].data, c.Bytes()};
  c.ranks().Exchange({}, {&receive, 1}, c.op.name);
}

// ---- in the background ----

// `work` on the memory of the result, which the operand may have as well.
void Start(const Call& c, std::function<void(Communicator&)> work) {
  if (c.out[0].data == nullptr) return;
  if (c.op.nranks == 1) return work(c.ranks());
  BackgroundOf(c.op.nranks).Start(c.out[0].data, std::move(work));
}

void StartAllReduce(const Call& c) {
  if (c.in[0].data != c.out[0].data) c.Pass(0);
  Start(c, [reduction = c.op.reduction, element = c.element(), count = c.Count(),
            data = c.out[0].data](Communicator& ranks) {
    AllReduce(ranks, reduction, element, count, {{data}}, {{data}}, dist::StartAllReduceOp::kName);
  });
}

// Part r of the result on rank r; the others are not looked at.
void StartReduceScatter(const Call& c) {
  if (c.in[0].data != c.out[0].data) c.Pass(0);
  Start(c, [reduction = c.op.reduction, element = c.element(), count = c.Count() / c.op.nranks,
            data = c.out[0].data](Communicator& ranks) {
    const size_t bytes = StorageBytes(element, static_cast<size_t>(count));
    void* const mine = static_cast<std::byte*>(data) + bytes * static_cast<size_t>(ranks.rank());
    ReduceScatter(ranks, reduction, element, count, {{data}}, mine,
                  dist::StartReduceScatterOp::kName);
  });
}

void StartAllGather(const Call& c) {
  const size_t bytes = c.Bytes();
  const auto rank = static_cast<size_t>(RankOf(c.op.nranks));
  void* const data = c.out[0].data;
  void* const mine = static_cast<std::byte*>(data) + bytes * rank;
  if (bytes > 0) std::memcpy(mine, c.in[0].data, bytes);
  Start(c, [bytes, data, mine](Communicator& ranks) {
    AllGather(ranks, mine, bytes, data, dist::StartAllGatherOp::kName);
  });
}

void RunShard(const Call& c) {
  const size_t bytes = c.op.outputs[0].Bytes(c.out[0]);
  const auto rank = static_cast<size_t>(RankOf(c.op.nranks));
  if (bytes == 0) return;
  std::memcpy(c.out[0].data, static_cast<const std::byte*>(c.in[0].data) + rank * bytes, bytes);
}

void RunWait(const Call& c) {
  if (c.op.nranks > 1) BackgroundOf(c.op.nranks).Wait(c.in[0].data);
  if (c.op.part) return RunShard(c);
  if (c.in[0].data != c.out[0].data) c.Pass(0);
}

void RunBarrier(const Call& c) {
  Barrier(c.ranks(), c.op.name);
  for (size_t i = 0; i < c.op.inputs.size(); ++i) c.Pass(i);
}

using Function = void (*)(const Call&);

Function FunctionOf(const std::string& name) {
  static const std::map<std::string, Function, std::less<>> functions = {
      {dist::AllReduceOp::kName, RunAllReduce},
      {dist::AllReduceBucketOp::kName, RunBucket},
      {dist::ReduceOp::kName, RunReduce},
      {dist::BroadcastOp::kName, RunBroadcast},
      {dist::AllGatherOp::kName, RunAllGather},
      {dist::ReduceScatterOp::kName, RunReduceScatter},
      {dist::AllToAllOp::kName, RunAllToAll},
      {dist::SendOp::kName, RunSend},
      {dist::RecvOp::kName, RunRecv},
      {dist::BarrierOp::kName, RunBarrier},
      {dist::StartAllReduceOp::kName, StartAllReduce},
      {dist::StartReduceScatterOp::kName, StartReduceScatter},
      {dist::StartAllGatherOp::kName, StartAllGather},
      {dist::WaitOp::kName, RunWait},
      {dist::ShardOp::kName, RunShard},
  };
  const auto at = functions.find(name);
  LATHE_CHECK(at != functions.end(), "no kernel for ", name);
  return at->second;
}

KernelPort PortOf(Value v) {
  const auto type = v.type().cast<AnyTensorType>();
  return {type.element(), type.rank()};
}

Collective Describe(const Operation* op) {
  Collective c{.name = std::string(op->name()), .inputs = {}, .outputs = {}};
  for (size_t i = 0; i < op->num_operands(); ++i) c.inputs.push_back(PortOf(op->operand(i)));
  for (size_t i = 0; i < op->num_results(); ++i) c.outputs.push_back(PortOf(op->result(i)));
  c.nranks = op->attribute("nranks").cast<IntAttribute>().value();
  for (const char* name : {"root", "to", "from"}) {
    if (const auto peer = op->attribute(name).dyn_cast<IntAttribute>()) c.peer = peer.value();
  }
  if (const auto part = op->attribute("part").dyn_cast<BoolAttribute>()) c.part = part.value();
  if (const auto reduction = op->attribute("reduction").dyn_cast<StrAttribute>()) {
    c.reduction = ReductionNamed(reduction.value());
  }
  return c;
}

// A tensor of strings, or without a rank, is for the interpreter.
bool HasKernel(const Operation* op) {
  const auto is_flat = [](Value v) {
    const auto type = v ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType();
    return type && type.is_value() && type.has_rank() && BitWidth(type.element()) != 0;
  };
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (!is_flat(op->operand(i))) return false;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (!is_flat(op->result(i))) return false;
  }
  return true;
}

void Outline(Program& program, Operation* op, const std::string& name) {
  IrContext& context = program.context();
  Builder b = Builder::AtEnd(program.block());
  b.set_location(op->location());
  const std::vector<NamedAttribute> attributes = {
      b.Named(builtin::FuncOp::kNameAttr, b.Attr(name)),
      b.Named(kCompilerAttr, b.Attr(std::string_view(kCollectives)))};
  Operation* function = b.Create(context.GetOp<builtin::FuncOp>(), {}, attributes, {}, 1);
  Block* body = function->region(0).AddBlock();
  IrMapping mapping;
  std::vector<Value> operands, results, returned;
  std::vector<Type> types;
  std::vector<Value> arguments;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    operands.push_back(op->operand(i));
    arguments.push_back(body->AddArgument(op->operand(i).type()));
  }
  Operation* inner = Clone(op, mapping);
  for (size_t i = 0; i < arguments.size(); ++i) inner->set_operand(i, arguments[i]);
  body->PushBack(inner);
  for (size_t i = 0; i < op->num_results(); ++i) {
    types.push_back(op->result(i).type());
    returned.push_back(inner->result(i));
  }
  Builder::AtEnd(body).Create(context.GetOp<builtin::ReturnOp>(), returned, {}, {});
  Builder before = Builder::Before(op);
  before.set_location(op->location());
  const NamedAttribute callee = before.Named(builtin::CallOp::kCalleeAttr, before.Attr(name));
  Operation* call = before.Create(context.GetOp<builtin::CallOp>(), operands, {&callee, 1}, types);
  for (size_t i = 0; i < op->num_results(); ++i) {
    op->result(i).ReplaceAllUsesWith(call->result(i));
  }
  op->Erase();
}

}  // namespace

void OutlineCollectives(Program& program) {
  std::vector<Operation*> collectives;
  std::set<std::string, std::less<>> names;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (auto function = op->dyn_cast<builtin::FuncOp>()) {
      names.emplace(function.name());
      w.SkipRegions();
    } else if (IsCollective(op) && HasKernel(op)) {
      collectives.push_back(op);
    }
  }
  size_t next = 0;
  for (Operation* op : collectives) {
    std::string name;
    do {
      name = StrCat(kCollectives, "_", next++);
    } while (!names.insert(name).second);
    Outline(program, op, name);
  }
}

std::vector<std::pair<size_t, size_t>> CollectiveInPlace(const Operation* function) {
  Operation* op = function->region(0).front()->front();
  const bool keeps = op->isa<dist::StartAllReduceOp>() || op->isa<dist::StartReduceScatterOp>() ||
                     (op->isa<dist::WaitOp>() && !op->cast<dist::WaitOp>().part());
  if (!keeps) return {};
  return {{0, 0}};
}

runtime::Executor::Kernel CollectiveKernel(const Operation* function) {
  const Operation* op = function->region(0).front()->front();
  return [collective = Describe(op), run = FunctionOf(std::string(op->name()))](
             const KernelBuffer* buffers, KernelTeam*) {
    run({collective, buffers, buffers + collective.inputs.size()});
  };
}

}  // namespace lathe
