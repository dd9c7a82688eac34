#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/arithmetic.h"
#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/dialect/recomputed.h"
#include "lathe/dialect/storage_traits.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "lathe/support/pack_blocks.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr const char* kFuseStop = "fuse_stop";  // as lathe/lower/fusion.h has it
constexpr double kArithmeticPerByte = 8;        // that a core does while memory moves a byte
constexpr size_t kAlignment = 64;
constexpr uint32_t kNear = 1;  // kernels between what gives a value and what reads it at once
constexpr size_t kMostThresholds = 16;
constexpr int kMostHalvings = 12;

/// An operation of the block. Others are named by their numbers, which are in program order.
struct CostNode {
  Operation* op = nullptr;
  std::vector<uint32_t> reads, users;  ///< each once; what regions read is read by their operation
  size_t bytes = 0;                    ///< of what it gives, as far as that is the program's
  size_t bytes_given = 0;              ///< of all that it gives
  double cost = 0;                     ///< of computing it: arithmetic, and bytes as arithmetic
  double chain = 0;                    ///< with all that is not kept and that it is computed from
  uint32_t storage = 0;                ///< whose memory its result is: its own number, but of views
  bool is_source = false;              ///< an input, a parameter or a constant: always there
  bool may_repeat = false;             ///< computed twice it gives the same
  bool is_elementwise = false;         ///< or broadcasts
  bool is_kept = false;                ///< it is read behind the boundary
  bool is_written = false;             ///< where it is computed, not in the kernel of who reads it
};

/// The block, and what of it is kept for what comes behind a boundary.
class Costs {
 public:
  Costs(Block* block, const std::vector<Dim::Binding>& sizes) : sizes_(sizes) {
    for (Operation& op : *block) {
      number_.emplace(&op, static_cast<uint32_t>(nodes_.size()));
      nodes_.emplace_back().op = &op;
    }
    for (uint32_t i = 0; i < size(); ++i) FindReads(i);
    for (uint32_t i = 0; i < size(); ++i) Describe(i);
  }

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  const CostNode& operator[](uint32_t i) const { return nodes_[i]; }
  uint32_t boundary() const { return boundary_; }

  /// The number of the operation of the block that `op` is, or is in; kNone for a new one.
  uint32_t NumberOf(const Operation* op) const {
    for (; op != nullptr; op = op->parent_op()) {
      const auto at = number_.find(op);
      if (at != number_.end()) return at->second;
    }
    return kNone;
  }

  void SetBoundary(uint32_t boundary) {
    boundary_ = boundary;
    for (uint32_t i = size(); i-- > 0;) {
      CostNode& node = nodes_[i];
      const bool read = !node.users.empty() && node.users.back() > boundary && i <= boundary;
      node.is_kept = (node.is_kept || read) && !node.is_source;
      if (node.storage != i && node.is_kept) nodes_[node.storage].is_kept = true;
    }
    for (CostNode& node : nodes_) {
      node.chain = node.cost;
      for (const uint32_t r : node.reads) node.chain += ChainOf(nodes_[r]);
    }
    FindWritten();
  }

  /// What one elementwise operation alone reads is not written: both are one kernel.
  bool IsFused(uint32_t i, size_t readers, uint32_t reader) const {
    return readers == 1 && nodes_[reader].is_elementwise &&
           nodes_[reader].bytes_given == nodes_[i].bytes &&
           KindOf(nodes_[i].op) != OpKind::kOpaque && !nodes_[i].is_written;
  }

 private:
  /// What is computed again for who is computed again.
  double ChainOf(const CostNode& read) const {
    const CostNode& node = nodes_[read.storage];
    return node.is_source || node.is_kept || !node.may_repeat ? 0 : node.chain;
  }

  /// A gradient that the kernel of its update computes keeps all that it is computed from until
  /// then: it is better written at once, unless it is larger than that.
  void FindWritten() {
    std::vector<uint32_t> heavy(nodes_.size() + 1, 0);  // how many kernels there are before
    for (uint32_t i = 0; i < size(); ++i) {
      const CostNode& node = nodes_[i];
      heavy[i + 1] =
          heavy[i] + (node.is_source || node.is_elementwise || node.storage != i ? 0 : 1);
    }
    for (uint32_t i = boundary_ + 1; i < size(); ++i) {
      CostNode& node = nodes_[i];
      const bool updates =
          std::ranges::all_of(node.users, [&](uint32_t u) { return nodes_[u].is_elementwise; });
      if (node.users.empty() || node.bytes == 0 || !updates) continue;
      size_t read = 0;
      for (const uint32_t r : node.reads) read += nodes_[nodes_[r].storage].bytes;
      node.is_written = heavy[node.users[0]] > heavy[i + 1] + kNear && read >= node.bytes;
    }
  }

  void FindReads(uint32_t i) {
    Operation* op = nodes_[i].op;
    AddReads(i, op);
    if (op->num_regions() == 0 || op->isa<builtin::FuncOp>()) return;
    for (OpWalker w(op); Operation* inner = w.Next();) AddReads(i, inner);
  }

  void AddReads(uint32_t i, const Operation* op) {
    for (size_t k = 0; k < op->num_operands(); ++k) {
      const Operation* maker = op->operand(k) ? op->operand(k).defining_op() : nullptr;
      const auto at = maker == nullptr ? number_.end() : number_.find(maker);
      if (at == number_.end() || at->second == i) continue;
      CostNode& made = nodes_[at->second];
      if (!made.users.empty() && made.users.back() == i) continue;
      made.users.push_back(i);
      nodes_[i].reads.push_back(at->second);
    }
  }

  static bool IsSource(const Operation* op) {
    return op->num_operands() == 0 || op->HasTrait<ConstantLike>() ||
           op->isa<builtin::GetParameterOp>();
  }

  /// Outputs lie in memory of the caller, and parameters are mostly set in place.
  bool IsGivenAway(const CostNode& node) const {
    return std::ranges::any_of(node.users,
                               [&](uint32_t u) { return nodes_[u].op->num_results() == 0; });
  }

  void Describe(uint32_t i) {
    CostNode& node = nodes_[i];
    Operation* op = node.op;
    node.storage = i;
    node.is_source = IsSource(op);
    if (node.is_source) return;
    const bool is_view = op->HasTrait<KeepsBytes>() && !node.reads.empty();
    if (is_view) node.storage = nodes_[node.reads[0]].storage;
    node.may_repeat = IsMergeable(op) && op->num_results() > 0;
    node.is_elementwise = !is_view && KindOf(op) <= OpKind::kBroadcast;
    if (is_view) return;
    size_t moved = 0;
    for (size_t k = 0; k < op->num_operands(); ++k) moved += BytesOf(op->operand(k));
    for (size_t k = 0; k < op->num_results(); ++k) node.bytes += BytesOf(op->result(k));
    node.cost = kArithmeticPerByte * static_cast<double>(moved + node.bytes) +
                static_cast<double>(ArithmeticOf(op).Evaluate(sizes_).value_or(0));
    node.bytes_given = node.bytes;
    if (IsGivenAway(node)) node.bytes = 0;
  }

  /// 0 where the size is not known.
  size_t BytesOf(Value value) const {
    const auto type = TensorOrNull(value);
    if (!type || !type.has_rank() || BitWidth(type.element()) == 0) return 0;
    const int64_t elements = ElementsOf(type).Evaluate(sizes_).value_or(0);
    return StorageBytes(type.element(), static_cast<size_t>(std::max<int64_t>(elements, 0)));
  }

  const std::vector<Dim::Binding>& sizes_;
  std::vector<CostNode> nodes_;
  std::unordered_map<const Operation*, uint32_t> number_;  // looked up, never iterated
  uint32_t boundary_ = kNone;
};

/// What is computed twice, by number.
using Selection = std::vector<bool>;

/// The program with a selection computed again: each behind the boundary, before who reads it
/// there first, with all that is needed for it.
class Schedule {
 public:
  Schedule(const Costs& nodes, const Selection& again) : nodes_(nodes) {
    place_.assign(nodes.size(), kNone);
    for (uint32_t i = nodes.size(); i-- > 0;) {
      if (!again[i]) continue;
      for (const uint32_t u : nodes[i].users) {
        place_[i] = std::min(place_[i], u > nodes.boundary() ? u : place_[u]);
      }
      if (place_[i] != kNone) work_ += nodes[i].cost;
    }
  }

  /// Before which operation this one is computed again; kNone: it is not.
  uint32_t place(uint32_t i) const { return place_[i]; }
  double work() const { return work_; }
  size_t peak() {
    Measure();
    return peak_;
  }
  /// The operation at which the most is alive.
  uint32_t peak_at() {
    Measure();
    return peak_at_;
  }

 private:
  struct Instance {
    uint32_t node;
    bool is_again;
  };
  struct Storage {
    uint32_t begin = kNone, end = 0;
    uint32_t readers = 0, last_reader = 0;
  };

  void Measure() {
    if (peak_at_ != kNone) return;
    Order();
    for (auto& storages : storages_) storages.assign(nodes_.size(), {});
    for (uint32_t t = 0; t < order_.size(); ++t) Touch(t);
    for (uint32_t t = 0; t < order_.size(); ++t) ShareMemory(t);
    FindPeak();
  }

  void Order() {
    std::vector<std::vector<uint32_t>> before(nodes_.size());
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (place_[i] != kNone) before[place_[i]].push_back(i);
    }
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      for (const uint32_t again : before[i]) order_.push_back({again, true});
      order_.push_back({i, false});
    }
  }

  bool ReadsAgain(const Instance& by, uint32_t read) const {
    return place_[read] != kNone && (by.is_again || by.node > nodes_.boundary());
  }

  void Touch(uint32_t t) {
    const Instance& at = order_[t];
    const CostNode& node = nodes_[at.node];
    if (node.storage == at.node) storages_[at.is_again][at.node].begin = t;
    for (const uint32_t r : node.reads) {
      Storage& storage = storages_[ReadsAgain(at, r)][nodes_[r].storage];
      storage.end = std::max(storage.end, t);
      if (node.storage != at.node) continue;
      ++storage.readers;
      storage.last_reader = at.node;
    }
  }

  bool IsFused(uint32_t i, const Storage& storage) const {
    return nodes_.IsFused(i, storage.readers, storage.last_reader);
  }

  void ShareMemory(uint32_t t) {
    const Instance& at = order_[t];
    if (!nodes_[at.node].is_elementwise) return;
    for (const uint32_t r : nodes_[at.node].reads) {
      const uint32_t from = nodes_[r].storage;
      Storage& storage = storages_[ReadsAgain(at, r)][from];
      if (storage.end != t || t == 0 || nodes_[from].bytes != nodes_[at.node].bytes) continue;
      if (IsFused(from, storage)) continue;
      --storage.end;
      return;
    }
  }

  void FindPeak() {
    std::vector<int64_t> change(order_.size() + 1, 0);
    for (const auto& storages : storages_) {
      for (uint32_t i = 0; i < storages.size(); ++i) {
        const Storage& s = storages[i];
        if (s.begin == kNone || nodes_[i].bytes == 0 || IsFused(i, s)) continue;
        const auto bytes =
            static_cast<int64_t>((nodes_[i].bytes + kAlignment - 1) / kAlignment * kAlignment);
        change[s.begin] += bytes;
        change[std::max(s.begin, s.end) + 1] -= bytes;
      }
    }
    int64_t alive = 0, most = -1;
    for (uint32_t t = 0; t < order_.size(); ++t) {
      alive += change[t];
      if (alive <= most) continue;
      most = alive;
      peak_at_ = order_[t].node;
    }
    peak_ = static_cast<size_t>(std::max<int64_t>(most, 0));
  }

  const Costs& nodes_;
  std::vector<uint32_t> place_;
  double work_ = 0;
  std::vector<Instance> order_;
  std::vector<Storage> storages_[2];  // of the first time, and of the second
  size_t peak_ = 0;
  uint32_t peak_at_ = kNone;
};

/// Looks for the selection of least work whose peak is at most a given one [Chen et al., 2016,
/// arXiv:1604.06174]: all that costs little for its bytes, but for what
/// ends a stretch whose results, computed again at once, would take too much.
class Search {
 public:
  Search(const Costs& nodes, size_t most) : nodes_(nodes), most_(most) {}

  /// The one of the least peak if none fits.
  Selection Run() {
    Consider(Selection(nodes_.size(), false));
    size_t total = 0;
    for (uint32_t i = 0; i < nodes_.size(); ++i) total += nodes_[i].is_kept ? nodes_[i].bytes : 0;
    for (const double threshold : Thresholds()) {
      size_t stretch = std::numeric_limits<size_t>::max();
      for (int k = 0; k <= kMostHalvings && stretch > 0; ++k) {
        Consider(Select(threshold, stretch));
        stretch = total >> (k + 1);
      }
    }
    if (best_peak_ <= most_) KeepDearest();
    return best_;
  }

 private:
  bool IsCandidate(uint32_t i) const {
    const CostNode& node = nodes_[i];
    return node.is_kept && node.may_repeat && node.storage == i && node.bytes > 0;
  }
  double PriceOf(uint32_t i) const {
    return nodes_[i].chain / static_cast<double>(nodes_[i].bytes);
  }

  std::vector<double> Thresholds() const {
    std::vector<double> prices;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (IsCandidate(i)) prices.push_back(PriceOf(i));
    }
    std::ranges::sort(prices);
    std::vector<double> thresholds;
    for (size_t k = 1; k <= kMostThresholds && !prices.empty(); ++k) {
      const double price = prices[(prices.size() * k - 1) / kMostThresholds];
      if (thresholds.empty() || price > thresholds.back()) thresholds.push_back(price);
    }
    return thresholds;
  }

  Selection Select(double threshold, size_t stretch) const {
    Selection again(nodes_.size(), false);
    std::vector<size_t> open(nodes_.size(), 0);  // bytes since the last that is kept
    for (uint32_t i = 0; i < nodes_.size() && i <= nodes_.boundary(); ++i) {
      const CostNode& node = nodes_[i];
      if (node.storage != i) {
        again[i] = again[node.storage] && node.may_repeat;
        open[i] = open[node.storage];
        continue;
      }
      if (node.is_source || !node.may_repeat) continue;
      size_t bytes = 0;
      for (const uint32_t r : node.reads) bytes = std::max(bytes, open[r]);
      bytes += node.bytes;
      again[i] = !node.is_kept || (IsCandidate(i) && PriceOf(i) <= threshold && bytes <= stretch);
      if (again[i]) open[i] = bytes;
    }
    return again;
  }

  void Consider(const Selection& again) {
    Schedule schedule(nodes_, again);
    const size_t peak = schedule.peak();
    const bool fits = peak <= most_, best_fits = best_peak_ <= most_;
    const bool better = fits && best_fits ? schedule.work() < best_work_ : peak < best_peak_;
    if (!best_.empty() && !better) return;
    best_ = again;
    best_peak_ = peak;
    best_work_ = schedule.work();
  }

  /// Of what is computed again, what costs most for its bytes is kept as long as that fits.
  void KeepDearest() {
    std::vector<uint32_t> repeated;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (best_[i] && IsCandidate(i)) repeated.push_back(i);
    }
    std::ranges::stable_sort(repeated, std::greater<>(), [&](uint32_t i) { return PriceOf(i); });
    const Selection all = best_;
    size_t fits = 0, fails = repeated.size() + 1;
    while (fits + 1 < fails) {
      const size_t middle = (fits + fails) / 2;
      const Selection fewer = Without(all, std::span(repeated).first(middle));
      (Schedule(nodes_, fewer).peak() <= most_ ? fits : fails) = middle;
      Consider(fewer);
    }
  }

  Selection Without(Selection again, std::span<const uint32_t> kept) const {
    for (const uint32_t i : kept) again[i] = false;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].storage != i) again[i] = again[i] && again[nodes_[i].storage];
    }
    return again;
  }

  const Costs& nodes_;
  const size_t most_;
  Selection best_;
  size_t best_peak_ = 0;
  double best_work_ = 0;
};

class RecomputePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const double keep = option_float("keep");
    if (!(keep >= 0 && keep <= 1)) {
      Fail(StrCat("keep is ", option("keep")), "it is a part of the peak, from 0 to 1");
    }
    const std::vector<Dim::Binding> sizes = Sizes();
    Costs nodes(graph.block(), sizes);
    const Selection nothing(nodes.size(), false);
    Schedule before(nodes, nothing);
    if (nodes.size() == 0) return;
    nodes.SetBoundary(before.peak_at());
    const auto most = static_cast<size_t>(keep * static_cast<double>(before.peak()));
    Schedule after(nodes, Search(nodes, most).Run());
    Count("peak before", static_cast<int64_t>(before.peak()));
    Count("peak after", static_cast<int64_t>(after.peak()));
    if (after.peak() >= before.peak()) return;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].is_written) Write(graph, nodes[i].op);
    }
    if (after.work() > 0) Repeat(graph, nodes, after);
  }

 private:
  [[noreturn]] static void Fail(std::string message, std::string hint) {
    throw Error(ErrorCode::kInvalidArgument, "recompute/option", std::move(message))
        .Hint(std::move(hint));
  }

  std::vector<Dim::Binding> Sizes() const {
    std::vector<Dim::Binding> sizes;
    for (const std::string& text : option_list("sizes")) {
      const size_t equals = text.find('=');
      const auto value = equals == std::string::npos
                             ? std::nullopt
                             : ParseInt(std::string_view(text).substr(equals + 1));
      if (!value || *value < 0) {
        Fail(StrCat("'", text, "' is not the size of a symbol"), "recompute{sizes=[N=64]}");
      }
      sizes.emplace_back(text.substr(0, equals), *value);
    }
    return sizes;
  }

  void Write(Graph& graph, Operation* op) {
    op->SetAttribute(kFuseStop, BoolAttribute::Get(graph.context(), true));
    Applied(op, "it is written where it is computed, as it is read much later");
    Count("written");
    MarkChanged();
  }

  /// Each is cloned before who reads it first, in program order.
  void Repeat(Graph& graph, const Costs& nodes, const Schedule& schedule) {
    std::unordered_map<uint32_t, int64_t> points;  // looked up, never iterated
    std::vector<Operation*> clones(nodes.size(), nullptr);
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (schedule.place(i) == kNone) continue;
      const int64_t point = points.emplace(schedule.place(i), std::ssize(points) + 1).first->second;
      clones[i] = CloneOf(nodes, i, clones);
      clones[i]->SetAttribute(kRecomputed, IntAttribute::Get(graph.context(), point));
      Operation* before = nodes[schedule.place(i)].op;
      before->block()->InsertBefore(before, clones[i]);
      Applied(clones[i], "it is computed again, rather than kept");
      Count("recomputed");
    }
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (clones[i] != nullptr) Redirect(nodes, i, clones[i]);
    }
    MarkChanged();
  }

  static Operation* CloneOf(const Costs& nodes, uint32_t i, const std::vector<Operation*>& clones) {
    IrMapping mapping;
    for (const uint32_t r : nodes[i].reads) {
      if (clones[r] == nullptr) continue;
      for (size_t k = 0; k < clones[r]->num_results(); ++k) {
        mapping.Map(nodes[r].op->result(k), clones[r]->result(k));
      }
    }
    return Clone(nodes[i].op, mapping);
  }

  /// Who stands behind the boundary reads the clone.
  static void Redirect(const Costs& nodes, uint32_t i, Operation* clone) {
    std::vector<std::pair<Operation*, size_t>> uses;
    for (size_t k = 0; k < clone->num_results(); ++k) {
      uses.clear();
      for (const OpOperand use : nodes[i].op->result(k).uses()) {
        const uint32_t reader = nodes.NumberOf(use.owner());
        if (reader != kNone && reader > nodes.boundary()) {
          uses.emplace_back(use.owner(), use.index());
        }
      }
      for (const auto& [op, operand] : uses) op->set_operand(operand, clone->result(k));
    }
  }
};

REGISTER_PASS(recompute, RecomputePass)
    .Doc("computes values twice rather than keep them, so that less memory is needed")
    .Details(
        "What is alive where the most is, and is read behind that place, may be computed again "
        "there, from inputs, parameters and what is kept: activations that gradients need, in a "
        "training program. What costs least for the bytes that it takes goes first, in "
        "arithmetic and bytes moved; expensive operations are repeated where nothing else is "
        "left, each once, in stretches between values that are kept. The clones are marked "
        "`recomputed`, with the number of the place, so that nothing merges them with what they "
        "repeat. Random operations are left alone: `random_state`, before, makes them functions "
        "of a counter, which give the same numbers again. The peak is an estimate: of values of "
        "the top block, without what kernels need for themselves.")
    .Option("keep", PassOption::Kind::kFloat, "0.5",
            "part of the estimated peak that may be used; what is nearest if there is no way")
    .Option("sizes", PassOption::Kind::kStrings, "[]",
            "of symbols, [N=64]; values of other symbols count as nothing");

}  // namespace

}  // namespace lathe
