#include "test/unit/transform/mutable_programs.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe::testing {

std::vector<Statement> RandomStatements(uint64_t seed, size_t count) {
  RandomStream random(seed);
  std::vector<Statement> statements(count);
  for (Statement& s : statements) {
    for (uint32_t& v : s) v = random.NextU32();
  }
  return statements;
}

namespace {

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  bool is_mutable;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t d : shape) text += StrCat(text.empty() ? "" : ", ", d);
  return StrCat("[", text, "]");
}

std::string TypeText(const TensorInfo& v) {
  return StrCat(v.is_mutable ? "tensor<" : "v_tensor<", ShapeText(v.shape), ", f32>");
}

class Writer {
 public:
  Writer() {
    scopes_.emplace_back();
    Feed("x0", {2, 3}, true);
    Feed("x1", {6}, true);
    Feed("v0", {2, 3}, false);
    Feed("v1", {3}, false);
    Line("%c = nn.feed() {name = \"c\"} : () -> v_tensor<[], bool>");
    Line("%half = builtin.constant() {value = tensor<[], f32> [0.5]} : () -> v_tensor<[], f32>");
    values().push_back({"%half", {}, false});
  }

  void Add(const Statement& s) {
    s_ = &s;
    using Rule = void (Writer::*)();
    static constexpr Rule kRules[] = {
        &Writer::ToTensor, &Writer::ToValue,   &Writer::Slice,      &Writer::Slice,
        &Writer::Select,   &Writer::Transpose, &Writer::Reshape,    &Writer::Reshape,
        &Writer::WriteOne, &Writer::WriteOne,  &Writer::WriteTwo,   &Writer::WriteTwo,
        &Writer::WriteTwo, &Writer::Overwrite, &Writer::Overwrite,  &Writer::Compute,
        &Writer::Compute,  &Writer::Fetch,     &Writer::Fetch,      &Writer::List,
        &Writer::OpenIf,   &Writer::OpenWhile, &Writer::OpenScan,   &Writer::Close,
        &Writer::Close,    &Writer::Close,     &Writer::ComputeTwo, &Writer::ComputeTwo,
        &Writer::OpenMap};
    (this->*kRules[s[0] % std::size(kRules)])();
  }

  std::string Finish() {
    while (scopes_.size() > 1) Close();
    for (const TensorInfo& v : std::vector<TensorInfo>(values())) FetchOf(v);
    return StrCat("program {\n", text_, "}\n");
  }

 private:
  struct Scope {
    std::vector<TensorInfo> values = {};
    std::optional<TensorInfo> result = {};  // type of what the region gives
    std::string close = {};                 // text after the region
    std::string other = {};                 // text that starts an `if`'s second region
    std::string yield_first = {}, yield_type = {};
  };

  std::vector<TensorInfo>& values() { return scopes_.back().values; }
  void Line(const std::string& text) {
    text_ += std::string(2 * scopes_.size(), ' ') + text + "\n";
  }
  uint32_t Number(size_t i, uint32_t count) const { return (*s_)[i] % count; }
  std::string Fresh() { return StrCat("%", next_++); }

  // A visible tensor for which `fits` holds; later ones are as likely as earlier ones.
  template <class F>
  std::optional<TensorInfo> Pick(size_t number, const F& fits) const {
    std::vector<const TensorInfo*> found;
    for (const Scope& scope : scopes_) {
      for (const TensorInfo& v : scope.values) {
        if (fits(v)) found.push_back(&v);
      }
    }
    if (found.empty()) return std::nullopt;
    return *found[(*s_)[number] % found.size()];
  }
  std::optional<TensorInfo> PickMutable(size_t number, size_t min_rank = 0) const {
    return Pick(number,
                [&](const TensorInfo& v) { return v.is_mutable && v.shape.size() >= min_rank; });
  }
  std::optional<TensorInfo> PickOfShape(size_t number, const std::vector<int64_t>& shape) const {
    return Pick(number, [&](const TensorInfo& v) { return v.shape == shape || v.shape.empty(); });
  }
  std::optional<TensorInfo> PickAny(size_t number) const {
    return Pick(number, [](const TensorInfo&) { return true; });
  }

  TensorInfo Made(std::vector<int64_t> shape, bool is_mutable) {
    values().push_back({Fresh(), std::move(shape), is_mutable});
    return values().back();
  }

  void Feed(const std::string& name, std::vector<int64_t> shape, bool is_mutable) {
    values().push_back({"%" + name, std::move(shape), is_mutable});
    Line(StrCat("%", name, " = nn.feed() {name = \"", name, "\"} : () -> ",
                TypeText(values().back())));
  }

  void Op(const std::string& op, const std::vector<TensorInfo>& operands,
          const std::string& attributes, std::vector<int64_t> shape, bool is_mutable) {
    std::string names, types;
    for (const TensorInfo& v : operands) {
      names += StrCat(names.empty() ? "" : ", ", v.name);
      types += StrCat(types.empty() ? "" : ", ", TypeText(v));
    }
    const TensorInfo made = Made(std::move(shape), is_mutable);
    Line(StrCat(made.name, " = ", op, "(", names, ")", attributes.empty() ? "" : " {", attributes,
                attributes.empty() ? "" : "}", " : (", types, ") -> ", TypeText(made)));
  }

  // ---- copies ----

  void ToTensor() {
    const auto v = Pick(1, [](const TensorInfo& t) { return !t.is_mutable; });
    if (v) Op("builtin.to_tensor", {*v}, "", v->shape, true);
  }
  void ToValue() {
    if (const auto v = PickMutable(1)) Op("builtin.to_vtensor", {*v}, "", v->shape, false);
  }

  // ---- views ----

  void Slice() {
    const auto v = PickMutable(1, 1);
    if (!v) return;
    const size_t axis = Number(2, static_cast<uint32_t>(v->shape.size()));
    const int64_t extent = v->shape[axis];
    const int64_t start = Number(3, static_cast<uint32_t>(extent) + 1);
    const int64_t count = Number(4, static_cast<uint32_t>(extent - start) + 1);
    const bool backwards = Number(5, 4) == 0 && count > 0;
    const int64_t step = !backwards && Number(5, 4) == 1 ? 2 : 1;
    std::vector<int64_t> shape = v->shape;
    shape[axis] = (count + step - 1) / step;
    // Backwards over the same elements; one before the first is written as -extent - 1.
    const int64_t first = backwards ? start + count - 1 : start;
    const int64_t last = backwards ? (start == 0 ? -extent - 1 : start - 1) : start + count;
    Op("nn.view_slice", {*v},
       StrCat("starts = [", first, "], ends = [", last, "], axes = [", axis, "], steps = [",
              backwards ? -1 : step, "]"),
       shape, true);
  }

  void Select() {
    const auto v = PickMutable(1, 1);
    if (!v) return;
    const size_t axis = Number(2, static_cast<uint32_t>(v->shape.size()));
    if (v->shape[axis] == 0) return;
    const int64_t index = Number(3, static_cast<uint32_t>(v->shape[axis]));
    std::vector<int64_t> shape = v->shape;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    const bool negative = Number(4, 2) == 0;
    Op("nn.view_select", {*v},
       StrCat("axis = ", axis, ", index = ", negative ? index - v->shape[axis] : index), shape,
       true);
  }

  void Transpose() {
    const auto v = PickMutable(1, 2);
    if (!v) return;
    std::vector<int64_t> perm(v->shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::rotate(perm.begin(), perm.begin() + 1, perm.end());
    if (perm.size() > 2 && Number(2, 2) == 0) std::swap(perm[0], perm[1]);
    std::vector<int64_t> shape;
    for (const int64_t p : perm) shape.push_back(v->shape[static_cast<size_t>(p)]);
    Op("nn.view_transpose", {*v}, StrCat("perm = ", ShapeText(perm)), shape, true);
  }

  void Reshape() {
    const auto v = PickMutable(1);
    if (!v) return;
    std::vector<int64_t> shape = v->shape;
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const uint32_t how = Number(2, 3);
    if (how == 0) shape = {count};                                     // flatten
    if (how == 1 && shape.size() < 4) shape.insert(shape.begin(), 1);  // unsqueeze
    if (how == 2 && count % 2 == 0 && count > 0) shape = {count / 2, 2};
    Op("nn.view_reshape", {*v}, StrCat("shape = ", ShapeText(shape)), shape, true);
  }

  // ---- writes ----

  void WriteOne() {
    static constexpr const char* kOps[] = {"nn.neg_", "nn.relu_", "nn.abs_"};
    if (const auto v = PickMutable(1)) Op(kOps[Number(2, 3)], {*v}, "", v->shape, true);
  }
  void WriteWith(const char* op) {
    const auto a = PickMutable(1);
    if (!a) return;
    const auto b = PickOfShape(2, a->shape);
    if (b) Op(op, {*a, *b}, "", a->shape, true);
  }
  void WriteTwo() {
    static constexpr const char* kOps[] = {"nn.add_", "nn.sub_", "nn.mul_"};
    WriteWith(kOps[Number(3, 3)]);
  }
  void Overwrite() { WriteWith("nn.copy_"); }

  // ---- values ----

  void Compute() {
    static constexpr const char* kOps[] = {"nn.neg", "nn.relu", "nn.identity", "nn.abs"};
    if (const auto v = PickAny(1)) Op(kOps[Number(2, 4)], {*v}, "", v->shape, v->is_mutable);
  }
  void ComputeTwo() {
    static constexpr const char* kOps[] = {"nn.add", "nn.sub", "nn.mul", "nn.copy"};
    const auto a = PickAny(1);
    if (!a) return;
    const auto b = PickOfShape(2, a->shape);
    if (b) Op(kOps[Number(3, 4)], {*a, *b}, "", a->shape, a->is_mutable || b->is_mutable);
  }
  void FetchOf(const TensorInfo& v) {
    Line(StrCat("nn.fetch(", v.name, ") {name = \"y", outputs_++, "\"} : (", TypeText(v),
                ") -> ()"));
  }
  void Fetch() {
    const auto v = PickAny(1);
    if (v && scopes_.size() == 1) FetchOf(*v);
  }

  // A list of two tensors of one type, and one of them taken out again.
  void List() {
    const auto a = PickAny(1);
    if (!a) return;
    const auto b = Pick(2, [&](const TensorInfo& v) { return TypeText(v) == TypeText(*a); });
    const std::string list = Fresh(), type = StrCat("list<", TypeText(*a), ">"), at = Fresh();
    Line(StrCat(list, " = nn.sequence_construct(", a->name, ", ", b->name, ") : (", TypeText(*a),
                ", ", TypeText(*b), ") -> ", type));
    Line(StrCat(at, " = builtin.constant() {value = tensor<[], i64> [", Number(3, 2),
                "]} : () -> v_tensor<[], i64>"));
    const TensorInfo made = Made(a->shape, a->is_mutable);
    Line(StrCat(made.name, " = nn.sequence_at(", list, ", ", at, ") : (", type,
                ", v_tensor<[], i64>) -> ", TypeText(made)));
  }

  // ---- regions ----

  static constexpr size_t kDepth = 4;

  void OpenIf() {
    const auto like = PickAny(1);
    if (!like || scopes_.size() >= kDepth) return;
    TensorInfo result = *like;
    result.name = Fresh();
    Line(StrCat(result.name, " = cf.if(%c) ({"));
    scopes_.push_back({.result = result,
                       .close = StrCat("}) : (v_tensor<[], bool>) -> ", TypeText(result)),
                       .other = "}, {"});
  }

  void OpenWhile() {
    const auto start = PickAny(1);
    if (!start || scopes_.size() >= kDepth) return;
    const std::string trips = Fresh(), i = Fresh(), go = Fresh();
    Line(StrCat(trips, " = builtin.constant() {value = tensor<[], i64> [", Number(2, 4),
                "]} : () -> v_tensor<[], i64>"));
    TensorInfo result = *start, carried = *start;
    result.name = Fresh();
    carried.name = Fresh();
    Line(StrCat(result.name, " = cf.while(", trips, ", none, ", start->name, ") ({"));
    Line(StrCat("^(", i, ": v_tensor<[], i64>, ", go, ": v_tensor<[], bool>, ", carried.name, ": ",
                TypeText(carried), "):"));
    scopes_.push_back({.values = {carried},
                       .result = result,
                       .close = StrCat("}) : (v_tensor<[], i64>, none, ", TypeText(carried),
                                       ") -> ", TypeText(result)),
                       .yield_first = go + ", ",
                       .yield_type = "v_tensor<[], bool>, "});
  }

  void OpenScan() {
    const auto state = PickAny(1);
    const auto over = Pick(2, [](const TensorInfo& v) { return !v.shape.empty(); });
    if (!state || !over || scopes_.size() >= kDepth) return;
    TensorInfo result = *state, carried = *state, slice = *over;
    result.name = Fresh();
    carried.name = Fresh();
    slice.name = Fresh();
    slice.shape.erase(slice.shape.begin());
    Line(StrCat(result.name, " = cf.scan(", state->name, ", ", over->name,
                ") {num_scan_inputs = 1, scan_input_directions = [", Number(3, 2), "]} ({"));
    Line(StrCat("^(", carried.name, ": ", TypeText(carried), ", ", slice.name, ": ",
                TypeText(slice), "):"));
    scopes_.push_back({.values = {carried, slice},
                       .result = result,
                       .close = StrCat("}) : (", TypeText(*state), ", ", TypeText(*over), ") -> ",
                                       TypeText(result))});
  }

  void OpenMap() {
    const auto over = PickAny(1);
    if (!over || scopes_.size() >= kDepth || Number(2, 3) != 0) return;
    TensorInfo entry = *over, result = *over;
    const std::string list = Fresh(), mapped = Fresh(), at = Fresh();
    entry.name = Fresh();
    result.name = Fresh();
    const std::string type = StrCat("list<", TypeText(entry), ">");
    Line(StrCat(at,
                " = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>"));
    Line(StrCat(list, " = nn.sequence_construct(", over->name, ") : (", TypeText(*over), ") -> ",
                type));
    Line(StrCat(mapped, " = nn.sequence_map(", list, ") ({"));
    Line(StrCat("^(", entry.name, ": ", TypeText(entry), "):"));
    scopes_.push_back({.values = {entry},
                       .result = result,
                       .close = StrCat("}) : (", type, ") -> ", type, "\n", result.name,
                                       " = nn.sequence_at(", mapped, ", ", at, ") : (", type,
                                       ", v_tensor<[], i64>) -> ", TypeText(result))});
  }

  // Ends the innermost region with a value of the promised type.
  void Close() {
    if (scopes_.size() == 1) return;
    Scope& scope = scopes_.back();
    const std::string type = TypeText(*scope.result);
    const auto given = Pick(1, [&](const TensorInfo& v) { return TypeText(v) == type; });
    LATHE_CHECK(given, "nothing of type ", type);
    Line(StrCat("cf.yield(", scope.yield_first, given->name, ") : (", scope.yield_type, type,
                ") -> ()"));
    scope.values.clear();
    const std::string other = std::move(scope.other);
    scope.other.clear();
    if (!other.empty()) return Line(other);
    const Scope closed = std::move(scope);
    scopes_.pop_back();
    Line(closed.close);
    values().push_back(*closed.result);
  }

  const Statement* s_ = nullptr;
  std::vector<Scope> scopes_;
  std::string text_;
  int next_ = 0;
  int outputs_ = 0;
};

}  // namespace

std::string MutableProgram(const std::vector<Statement>& statements) {
  Writer writer;
  for (const Statement& s : statements) writer.Add(s);
  static constexpr Statement kLast = {};
  writer.Add(kLast);  // what Finish closes picks the first there is
  return writer.Finish();
}

}  // namespace lathe::testing
