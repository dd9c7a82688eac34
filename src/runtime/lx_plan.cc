// The plan as bytes. Each structure says once what it is made of; writing and reading follow it.

#include <cstring>
#include <type_traits>

#include "lathe/support/error.h"
#include "src/runtime/lx_format.h"

namespace lathe::runtime::lx {
namespace {

template <class A>
void Fields(A& a, PlanSymbol& s) {
  a(s.name, s.input, s.axis);
}
template <class A>
void Fields(A& a, SizeCondition& c) {
  a(c.kind, c.a, c.b);
}
template <class A>
void Fields(A& a, PlanConstraint& c) {
  a(c.condition, c.is_conditional, c.id, c.message, c.origin, c.hint, c.notes);
}
template <class A>
void Fields(A& a, PlanVariable& v) {
  a(v.initial);
}
template <class A>
void Fields(A& a, PlanStorage& s) {
  a(s.bytes, s.begin, s.end, s.offset);
}
template <class A>
void Fields(A& a, PlanValue& v) {
  a(v.element, v.dims, v.place, v.index, v.offset);
  if (v.is_object()) a(v.type);
}
template <class A>
void Fields(A& a, PlanFunction& f) {
  a(f.text);
}
template <class A>
void Fields(A& a, PlanStep& s) {
  a(s.kernel, s.function, s.values, s.reads, s.label, s.origin, s.checks, s.flops, s.bytes, s.kind,
    s.target, s.takes);
  if (s.has_size()) a(s.size);
}
template <class A>
void Fields(A& a, PlanPort& p) {
  a(p.name, p.value);
}
template <class A>
void Fields(A& a, PlanText& t) {
  a(t.name, t.text);
}
template <class A>
void Fields(A& a, Constant& c) {
  a(c.name, c.element, c.shape, c.offset, c.checksum);
}
template <class A>
void Fields(A& a, Plan& p) {
  a(p.symbols, p.constraints, p.inputs, p.outputs, p.variables, p.storages, p.values, p.num_objects,
    p.functions, p.seed, p.steps);
  a(p.code.target, p.code.features, p.code.entries, p.precision, p.metadata);
}

template <class T>
inline constexpr bool kIsPlain = std::is_integral_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  template <class... T>
  void operator()(T&... fields) {
    (Put(fields), ...);
  }
  std::string bytes;

 private:
  template <class T>
  void Put(T& value) {
    if constexpr (kIsPlain<T>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
    } else {
      Fields(*this, value);
    }
  }
  void Put(std::string& text) {
    auto size = static_cast<uint32_t>(text.size());
    Put(size);
    bytes += text;
  }
  void Put(Dim& dim) {
    std::string text = dim.ToString();
    Put(text);
  }
  template <class T>
  void Put(std::vector<T>& items) {
    auto count = static_cast<uint32_t>(items.size());
    Put(count);
    for (T& item : items) Put(item);
  }
};

class Reader {
 public:
  Reader(const std::byte* data, uint64_t bytes) : at_(data), end_(data + bytes), begin_(data) {}
  template <class... T>
  void operator()(T&... fields) {
    (Get(fields), ...);
  }
  void ExpectEnd() const {
    if (at_ != end_) throw Fault(StrCat(end_ - at_, " bytes are left over"));
  }

 private:
  static constexpr size_t kMaxDimText = 8192;

  Error Fault(const std::string& what) const {
    return {ErrorCode::kParse, "lx/plan",
            StrCat("the plan is damaged at byte ", at_ - begin_, ": ", what)};
  }
  const std::byte* Take(uint64_t bytes) {
    const auto left = static_cast<uint64_t>(end_ - at_);
    if (bytes > left) throw Fault(StrCat(bytes, " bytes are needed, ", left, " are left"));
    at_ += bytes;
    return at_ - bytes;
  }
  template <class T>
  void Get(T& value) {
    if constexpr (kIsPlain<T>) {
      std::memcpy(&value, Take(sizeof(T)), sizeof(T));
    } else {
      Fields(*this, value);
    }
  }
  void Get(bool& truth) {
    uint8_t byte = 0;
    Get(byte);
    if (byte > 1) throw Fault(StrCat("a truth value is ", static_cast<int>(byte)));
    truth = byte != 0;
  }
  void Get(std::string& text) {
    uint32_t size = 0;
    Get(size);
    const std::byte* from = Take(size);
    text.assign(reinterpret_cast<const char*>(from), size);
  }
  void Get(Dim& dim) {
    std::string text;
    Get(text);
    if (text.size() > kMaxDimText) throw Fault("a dim is too long");
    try {
      dim = Dim::Parse(text);
    } catch (const Error& error) {
      throw Fault(StrCat("dim ", Quote(text), ": ", error.message()));
    }
  }
  // Items take at least a byte each, so a wrong count ends soon.
  template <class T>
  void Get(std::vector<T>& items) {
    uint32_t count = 0;
    Get(count);
    if (count > static_cast<uint64_t>(end_ - at_))
      throw Fault(StrCat("there are no ", count, " items"));
    for (uint32_t i = 0; i < count; ++i) Get(items.emplace_back());
  }

  const std::byte* at_;
  const std::byte* const end_;
  const std::byte* const begin_;
};

}  // namespace

std::string EncodePlan(const Plan& plan, const std::vector<Constant>& constants) {
  Writer writer;
  writer(const_cast<Plan&>(plan), const_cast<std::vector<Constant>&>(constants));
  return std::move(writer.bytes);
}

void DecodePlan(const std::byte* data, uint64_t bytes, Plan& plan,
                std::vector<Constant>& constants) {
  Reader reader(data, bytes);
  reader(plan, constants);
  reader.ExpectEnd();
}

}  // namespace lathe::runtime::lx
