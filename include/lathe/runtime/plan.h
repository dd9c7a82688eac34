#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/support/dim.h"
#include "lathe/support/element_type.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/tensor.h"

/// A compiled program as data: kernels in an order, and where each tensor lies. The compiler makes
/// it, a file holds it, the executor runs it; none of them needs the others.
namespace lathe::runtime {

inline constexpr uint32_t kNone = ~uint32_t{0};

/// A symbol of the program's dims, taken from the shape of an input: its dim `axis` is `name`. Or
/// computed: a step of kind kBind says what it is. Computed ones come last, in the order of their
/// last such steps.
struct PlanSymbol {
  std::string name;
  uint32_t input;     ///< index in Plan::inputs; kNone: it is computed
  uint32_t axis = 0;  ///< of the input

  bool is_computed() const { return input == kNone; }
};

/// What the program relies on: where it does not hold of the inputs' sizes, an operation of the
/// model is wrong. Placements look at them before anything runs, but for the conditional ones.
struct PlanConstraint {
  SizeCondition condition;  ///< made of the plan's symbols
  /// Of operations that may never run: it must hold where a step requires it.
  bool is_conditional = false;
  /// Of the error, as the interpreter has it: "shape/concat", the operation and what is wrong with
  /// it in terms of symbols, where it comes from in the model, and what to do.
  std::string id, message, origin, hint;
  std::vector<std::string> notes;  ///< the operation's inputs
};

/// Storages lie at multiples of this in the arena.
inline constexpr uint64_t kStorageAlignment = 64;

/// Bytes that live from one step to another. Storages that are alive at one step do not overlap.
struct PlanStorage {
  Dim bytes;           ///< a number, or made of the plan's symbols
  uint32_t begin = 0;  ///< first step at which it holds something
  uint32_t end = 0;    ///< last one
  /// In the arena, if `bytes` of all storages are numbers; else each is placed when the symbols
  /// that it is made of are known.
  uint64_t offset = 0;
};

/// A mutable parameter: bytes that the executor keeps from run to run, for all runs. In a plan that
/// writes any, no step after the first one that does can fail, or leads elsewhere than to the next.
struct PlanVariable {
  uint32_t initial;  ///< constant that gives its type, shape, name and first value
};

/// A tensor: row-major, `offset` bytes into what holds it, a multiple of its element's alignment.
/// Or an object: a tensor of strings, or of a rank or sizes that only the run tells, a list, a
/// dict, an optional. Dims of an object that are unknown, and an undefined element type, say
/// nothing of it.
struct PlanValue {
  enum class Place : uint8_t {
    kInput,     ///< the caller's memory: input `index`
    kOutput,    ///< the caller's memory: output `index`
    kConstant,  ///< constant `index`
    kArena,     ///< storage `index`
    kVariable,  ///< variable `index`
    kObject,    ///< object `index` of the run
  };
  ElementType element = ElementType::kUndefined;
  std::vector<Dim> dims;
  Place place = Place::kArena;
  uint32_t index = 0;
  uint64_t offset = 0;
  std::string type = {};  ///< of an object whose element and dims do not say it

  bool is_object() const { return place == Place::kObject; }
};

/// Computes what no kernel does: operations on objects, and those that have no strategy.
struct PlanFunction {
  /// A program in text form (docs/ir.md) that is one function, and behind it those that it calls.
  std::string text;
};

/// A kernel or a function on values: its inputs, outputs and workspaces in the order of its
/// KernelBuffers. Kernels only read objects, and these are tensors. A step without either copies
/// value 0 to value 1, which are equally large, or says which step is next. Otherwise that is the
/// one after it. Storages live from step to step in the order of the plan, whatever the way through
/// it; those that are there before a loop and in it, until it ends.
struct PlanStep {
  enum class Kind : uint8_t {
    kWork,     ///< the kernel or the copy
    kBranch,   ///< step `target` is next unless value 0, one bool, holds
    kJump,     ///< step `target` is next
    kRequire,  ///< constraint `target` must hold
    kBelow,    ///< step `target` is next unless value 0 is less than value 1, both one i64
    kCount,    ///< adds one to value 0, one i64
    kPutRow,   ///< copies value 0 to value 2, as row number value 1, one i64, of rows of that size,
               ///< or as the next item of an object that is a list
    kRepeat,   ///< step `target`, an earlier one, is next
    kBind,     ///< symbol `target`, a computed one, is value 0, one i64, from here on
    kResize,   ///< symbol `target`, a computed one, is what `size` is now from here on
    kGrow,     ///< the same, and the one storage that it places keeps what it holds
    kBindAxis,  ///< symbol `target`, a computed one, is the extent of axis `size` of value 0, an
                ///< object, from here on
    kList,      ///< value 0, an object, becomes a list without items, for kPutRow
    kStack,     ///< value 0, such a list of tensors of one shape, becomes a tensor of all of them
  };
  uint32_t kernel = kNone;    ///< index in PlanCode::entries
  uint32_t function = kNone;  ///< instead: index in Plan::functions
  std::vector<uint32_t> values;
  /// How many of `values`, from the front, are only read; the others are written, so they lie in
  /// outputs, variables or in the arena.
  uint32_t reads = 0;
  std::string label;    ///< for people: "conv relu"
  std::string origin;   ///< where it comes from in the model: "resnet.onnx: node 'conv1'"
  bool checks = false;  ///< the last value holds a KernelStatus afterwards
  Dim flops = {};       ///< what a run takes at least, made of symbols; unknown: not known
  Dim bytes = {};       ///< the same that it reads and writes
  Kind kind = Kind::kWork;
  /// A later step, or the number of steps: the end; of kRepeat an earlier one; or a constraint, or
  /// a symbol.
  uint32_t target = kNone;
  Dim size = 0;  ///< of kResize and kGrow, made of the plan's symbols; of kBindAxis a number
  /// Which of the values are objects that no later step reads as this one has: it may have them.
  std::vector<uint32_t> takes = {};

  bool is_resize() const { return kind == Kind::kResize || kind == Kind::kGrow; }
  bool has_size() const { return is_resize() || kind == Kind::kBindAxis; }

  /// Neither a kernel nor a copy.
  bool is_control() const { return kind != Kind::kWork; }
};

/// Position-independent machine code: of its bytes every part is read and executed in place, none
/// is written, nothing outside is named. Kernels are KernelFunctions at their entries.
struct PlanCode {
  std::string target;                 ///< what it was compiled for: "avx512"
  std::vector<std::string> features;  ///< that the processor must have, as in /proc/cpuinfo
  std::string bytes;
  std::vector<uint64_t> entries;  ///< per kernel, where in `bytes`
};

/// An input or an output of the program. Its value is an object or the whole of the caller's
/// memory: place kInput or kOutput, the port's own index, offset 0.
struct PlanPort {
  std::string name;
  uint32_t value;  ///< index in Plan::values; gives the element type and dims
};

/// Something that the model said about itself, such as its class names.
struct PlanText {
  std::string name, text;
};

struct Plan {
  std::vector<PlanSymbol> symbols;
  std::vector<PlanConstraint> constraints;
  std::vector<PlanPort> inputs, outputs;
  std::vector<Tensor> constants;
  /// Of the constants, all different; or empty, if there are no variables.
  std::vector<std::string> constant_names;
  std::vector<PlanVariable> variables;  ///< in the order of their constants
  std::vector<PlanStorage> storages;
  std::vector<PlanValue> values;
  uint32_t num_objects = 0;
  std::vector<PlanFunction> functions;
  uint64_t seed = 0;  ///< of the random numbers that functions draw
  std::vector<PlanStep> steps;
  PlanCode code;
  std::string precision;  ///< the level that kernels were compiled at: "f32"
  std::vector<PlanText> metadata;
};

/// Whether a step writes a variable.
bool WritesVariable(const Plan& plan, const PlanStep& step);

}  // namespace lathe::runtime
