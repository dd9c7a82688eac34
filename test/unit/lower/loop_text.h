#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lathe/support/text.h"

namespace lathe::schedule {

inline const std::string kI = "v_tensor<[], i64>", kF = "v_tensor<[], f32>";

/// Writes loops as text.
class LoopText {
 public:
  std::string Index(const std::vector<std::string>& counters, const std::vector<int64_t>& factors,
                    int64_t offset) {
    std::string operands, types, expr = StrCat(offset);
    for (size_t i = 0; i < counters.size(); ++i) {
      operands += StrCat(i == 0 ? "" : ", ", counters[i]);
      types += StrCat(i == 0 ? "" : ", ", kI);
      expr += StrCat(" + ", factors[i], " * d", i);
    }
    return Line(
        StrCat("loop.index(", operands, ") {expr = dim<", expr, ">} : (", types, ") -> ", kI));
  }
  std::string Load(const std::string& memory, const std::string& type,
                   const std::vector<std::string>& at) {
    return Line(StrCat("loop.load(", memory, ", none", Comma(at), ") : (", type, ", none",
                       Comma(std::vector<std::string>(at.size(), kI)), ") -> ", kF));
  }
  void Store(const std::string& memory, const std::string& type, const std::string& value,
             const std::vector<std::string>& at) {
    Line(StrCat("loop.store_(", memory, ", ", value, ", none", Comma(at), ") : (", type, ", ", kF,
                ", none", Comma(std::vector<std::string>(at.size(), kI)), ") -> ", type));
  }
  std::string Binary(const std::string& op, const std::string& a, const std::string& b) {
    return Line(StrCat(op, "(", a, ", ", b, ") : (", kF, ", ", kF, ") -> ", kF));
  }
  std::string For(int64_t extent, const std::function<void(const std::string&)>& body) {
    const std::string counter = Name();
    text += StrCat("loop.for() {extent = ", extent, "} ({\n^(", counter, ": ", kI, "):\n");
    body(counter);
    text += "cf.yield()\n})\n";
    return counter;
  }
  // The sum of what `body` gives.
  std::string Sum(int64_t extent, const std::function<std::string(const std::string&)>& body) {
    const std::string counter = Name(), sum = Name(), result = Name();
    const std::string zero =
        Line(StrCat("builtin.constant() {value = tensor<[], f32> [0.0]} : () -> ", kF));
    text += StrCat(result, " = loop.for(none, ", zero, ") {extent = ", extent, "} ({\n^(", counter,
                   ": ", kI, ", ", sum, ": ", kF, "):\n");
    const std::string next = Binary("nn.add", sum, body(counter));
    text += StrCat("cf.yield(", next, ") : (", kF, ") -> ()\n}) : (none, ", kF, ") -> ", kF, "\n");
    return result;
  }
  std::string Alloc(const std::string& dims) {
    return Line(StrCat("loop.alloc() : () -> tensor<[", dims, "], f32>"));
  }
  std::string text;

 private:
  static std::string Comma(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) list += ", " + name;
    return list;
  }
  std::string Name() { return StrCat("%v", count_++); }
  std::string Line(const std::string& what) {
    const std::string name = Name();
    text += StrCat(name, " = ", what, "\n");
    return name;
  }
  int count_ = 0;
};

}  // namespace lathe::schedule
