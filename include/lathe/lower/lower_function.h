#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/lower/precision.h"
#include "lathe/support/element_type.h"
#include "lathe/support/tensor.h"

/// From functions of operations to functions of loops.
namespace lathe {
class TuningRecords;
}

namespace lathe::lower {

/// What loops are made for. The driver fills it from the code generator's target.
struct Machine {
  int vector_bytes = 16;
  int vector_registers = 16;
  bool has_fma = false;
  bool has_tiles = false;  ///< instructions for the tiles of the loop dialect
  bool has_dots = false;   ///< an instruction for loop.dot; otherwise it takes many
  bool has_bf16 = false;   ///< instructions for loop.narrow and loop.dot_pairs
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 512 << 10;
  /// Whether an elementwise operation has instructions on scalars and vectors of its element types.
  std::function<bool(const Operation& op)> has_instruction;

  /// Bytes are multiplied in groups of so many: by loop.dot, or as i16 by loop.dot_pairs.
  int64_t byte_group() const { return has_dots ? 4 : 2; }
  int64_t lanes(ElementType element) const { return vector_bytes * 8 / BitWidth(element); }
};

/// Another order of the elements of an argument that is the same in every run, made once when the
/// program is compiled: zeros are added at the ends of its axes, the axes are split, then permuted.
/// Before that, its last axes may become sums of their elements.
struct PackedLayout {
  size_t argument = 0;
  /// Rows of as many factors as the last axes, of f32, have elements together: these become one
  /// axis, with an element per row, the sum of the old ones times the factors, rounded once.
  /// Empty: the axes stay.
  std::vector<double> sums = {};
  int64_t summed = 1;          ///< factors in a row
  Shape padded;                ///< an extent per axis of the argument, at least its own
  Shape split;                 ///< as many elements as `padded`, row-major
  std::vector<int64_t> order;  ///< axis i of the result is axis order[i] of `split`
  /// What the elements become, which are f32 then: kBF16, as loop.narrow rounds them. Undefined:
  /// they stay what they are.
  ElementType element = ElementType::kUndefined;
  /// The same argument in several orders, each with an empty `parts`: their elements one after the
  /// other, each part at a multiple of kPartElements, with zeros between. All else is left out
  /// then.
  std::vector<PackedLayout> parts = {};
  static constexpr int64_t kPartElements = 64;

  Shape shape() const;  ///< of the result
  ElementType element_of(ElementType own) const {
    return element == ElementType::kUndefined ? own : element;
  }
  int64_t part_begin(size_t i) const;  ///< the first element of part i; of what is behind the last
  bool operator==(const PackedLayout&) const = default;
};

/// Errors: none for a tensor of the extents that the layout was made for.
Tensor Pack(const Tensor& tensor, const PackedLayout& layout);

/// A size that a strategy chose.
struct KnobChoice {
  std::string name;
  int64_t taken;
  std::vector<int64_t> values;  ///< all that are right, the preferred one first
};

/// A way to compute a function that was given up though it should have served: an invariant of ours
/// that does not hold, loops that do not verify, a construct without code, code above a budget.
struct Remark {
  std::string code;      ///< id of the error, such as "internal/check" or "lower/budget"
  std::string strategy;  ///< that was given up; empty: the function as a whole was
  std::string message;

  std::string ToString() const;  ///< "conv was given up (internal/check): ..."
  bool operator==(const Remark&) const = default;
};

/// Operations of the loops of one function. More is too long to compile: the function is computed
/// another way, or split.
inline constexpr size_t kMaxOperations = 20000;

struct LowerOptions {
  std::string target = {};                 ///< name under which records are kept
  const TuningRecords* records = nullptr;  ///< the fastest measured implementation is taken
  /// The only one that may be taken: "matmul", "matmul{rows=6,vectors=2}"; empty: any.
  std::string implementation = {};
  std::vector<std::string> without = {};     ///< strategies that must not be taken
  size_t max_operations = kMaxOperations;    ///< of the loops that a strategy writes
  Precision precision = Precision::kStrict;  ///< that strategies may make use of
  /// What would be a remark is an error: kGivenUp.
  bool strict = false;
  /// A function that no strategy takes is going to be split, and so is one that only plain loops
  /// would take although it has an operation with better strategies: they are not asked.
  bool may_split = false;
};

/// What became of a function.
struct Lowered {
  bool done = false;
  std::string strategy;              ///< that made the loops; several, if extents decide: "a | b"
  std::string implementation;        ///< the same with the knobs that were set: "matmul{rows=6}"
  std::string why_not;               ///< per strategy, why not: "elementwise: ...; matmul: ..."
  std::string candidates;            ///< a line per strategy that was asked: taken, or why not
  std::vector<KnobChoice> knobs;     ///< of the strategy that is taken
  std::string unused_knobs;          ///< "rows=9": set, but no knob or value of that strategy
  std::vector<PackedLayout> packed;  ///< of arguments that the loops take in another order
  /// Arguments and results that may be the same memory: no element of the argument is read when
  /// that of the result has been written. A caller may use one of an argument's pairs.
  std::vector<std::pair<size_t, size_t>> in_place;
  /// Symbols that the types have instead of extents which no argument tells the parts of, and these
  /// extents. Scratch memory of its code may depend on them.
  std::vector<std::pair<std::string, Dim>> own_sizes;
  std::vector<Remark> remarks;  ///< on what was given up, in the order in which it was tried
};

/// What `error`, thrown by `strategy` or by the code generator for its loops, means: a remark,
/// after which the function is computed another way; nothing for what must end compilation (no code
/// generator, a limit of the caller, files).
std::optional<Remark> RemarkOn(const std::exception& error, const std::string& strategy);

/// The error that a remark is under `strict`: kInternal, with the function as a note.
inline constexpr const char* kGivenUp = "lower/given-up";
[[noreturn]] void ThrowGivenUp(const Remark& remark, const Operation* function);

/// What a `builtin.func` computes, for people: "matmul add gelu"; of more than `few` operations how
/// many of each there are, "53 conv, 49 relu".
std::string OperationNames(const Operation* function, size_t few = SIZE_MAX);

/// What records of a `builtin.func` are kept under: what it computes, on which types.
std::string WorkloadOf(const Operation* function);

/// The strategies that may be asked to lower a `builtin.func`, in order of preference.
std::vector<std::string> StrategiesFor(Operation* function, const std::string& target);

/// Replaces the body of a `builtin.func` by loops that compute the same from the same arguments,
/// but for those that are to be packed, whose types change. `constant[i]`: argument i is the same
/// tensor in every run and may be packed; without it, none is. Where several strategies serve
/// different extents, the choice is part of the loops. A function for which no strategy fits keeps
/// its operations, but for those that were decomposed; so does one with sizes that are not known.
Lowered LowerFunction(Operation* function, const Machine& machine,
                      const std::vector<bool>& constant = {}, const LowerOptions& options = {});

}  // namespace lathe::lower
