#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/runtime.h"

/// Compiled programs from C++, in terms of lathe/runtime.h alone: links liblathe_runtime, and
/// nothing of the compiler.
namespace lathe::runtime {

/// What went wrong; what() is the sentence.
class ModelError : public std::runtime_error {
 public:
  ModelError(lathe_code code, std::string id, const std::string& message, std::string text)
      : std::runtime_error(message), code_(code), id_(std::move(id)), text_(std::move(text)) {}
  /// The kind of error.
  lathe_code code() const { return code_; }
  const std::string& id() const { return id_; }      ///< "run/input-shape"
  const std::string& text() const { return text_; }  ///< several lines for a person

 private:
  lathe_code code_;
  std::string id_, text_;
};

/// Throws `error`, and frees it, unless it is null.
inline void ThrowIf(lathe_error* error) {
  if (error == nullptr) return;
  ModelError copy(lathe_error_code(error), lathe_error_id(error), lathe_error_message(error),
                  lathe_error_text(error));
  lathe_error_free(error);
  throw copy;
}

/// The element type of a C++ type.
template <class T>
inline constexpr lathe_element kElementOf = lathe_element{};
template <>
inline constexpr lathe_element kElementOf<float> = LATHE_F32;
template <>
inline constexpr lathe_element kElementOf<double> = LATHE_F64;
template <>
inline constexpr lathe_element kElementOf<bool> = LATHE_BOOL;
template <>
inline constexpr lathe_element kElementOf<int8_t> = LATHE_I8;
template <>
inline constexpr lathe_element kElementOf<int16_t> = LATHE_I16;
template <>
inline constexpr lathe_element kElementOf<int32_t> = LATHE_I32;
template <>
inline constexpr lathe_element kElementOf<int64_t> = LATHE_I64;
template <>
inline constexpr lathe_element kElementOf<uint8_t> = LATHE_U8;
template <>
inline constexpr lathe_element kElementOf<uint16_t> = LATHE_U16;
template <>
inline constexpr lathe_element kElementOf<uint32_t> = LATHE_U32;
template <>
inline constexpr lathe_element kElementOf<uint64_t> = LATHE_U64;

/// Somebody's elements, row-major.
struct ArrayView {
  /// `data` has as many elements as the shape says; both must outlive the view.
  template <class T>
  static ArrayView Of(std::span<const int64_t> shape, const T* data) {
    static_assert(kElementOf<T> != lathe_element{}, "no element type");
    return {kElementOf<T>, data, shape};
  }
  /// Strings that end with NUL, a pointer to each.
  static ArrayView Of(std::span<const int64_t> shape, const char* const* data) {
    return {LATHE_STRING, data, shape};
  }
  lathe_element element;
  const void* data;
  std::span<const int64_t> shape;
};

/// Elements of its own.
class Array {
 public:
  /// Undefined elements; `bytes` is what they take.
  Array(lathe_element element, std::vector<int64_t> shape, size_t bytes)
      : element_(element),
        shape_(std::move(shape)),
        bytes_(bytes),
        data_(new std::max_align_t[bytes / sizeof(std::max_align_t) + 1]) {}

  lathe_element element() const { return element_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  size_t bytes() const { return bytes_; }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  /// Throws ModelError (LATHE_TYPE) if the elements are no T.
  template <class T>
  std::span<const T> as() const {
    if (element_ != kElementOf<T>) {
      const std::string message = std::string("the elements are ") + lathe_element_name(element_) +
                                  ", read as another type";
      throw ModelError(LATHE_TYPE, "type/element", message, message);
    }
    return {reinterpret_cast<const T*>(data_.get()), bytes_ / sizeof(T)};
  }
  /// Throws ModelError (LATHE_TYPE) if the elements are not strings. Views of this array.
  std::vector<std::string_view> strings() const {
    if (element_ != LATHE_STRING) {
      const std::string message =
          std::string("the elements are ") + lathe_element_name(element_) + ", read as strings";
      throw ModelError(LATHE_TYPE, "type/element", message, message);
    }
    size_t count = 1;
    for (const int64_t extent : shape_) count *= static_cast<size_t>(extent);
    const auto* pointers = reinterpret_cast<const char* const*>(data_.get());
    return {pointers, pointers + count};
  }

 private:
  lathe_element element_;
  std::vector<int64_t> shape_;
  size_t bytes_;
  std::unique_ptr<std::max_align_t[]> data_;
};

/// As lathe_load_options.
struct ModelOptions {
  int threads = 0;                    ///< for one run; 0: one per core that it may use
  uint64_t max_bytes = 0;             ///< cap on what all runs together hold between steps; 0: none
  lathe_thread_pool* pool = nullptr;  ///< for runs, instead of threads of its own
  const lathe_allocator* allocator = nullptr;  ///< instead of the system's memory
};

/// A loaded program. Any number of threads may run one at once. Everything throws ModelError.
class Model {
 public:
  /// From an .lx file, or the graph of a program in three parts.
  explicit Model(const std::string& path, const ModelOptions& options = {}) {
    const lathe_load_options load = {sizeof(load), options.threads, options.max_bytes, options.pool,
                                     options.allocator};
    lathe_program* program = nullptr;
    ThrowIf(lathe_load_file(path.c_str(), &load, &program));
    program_.reset(program);
  }

  /// Ports in the order of the program; `index` must be below their number.
  size_t num_inputs() const { return lathe_num_inputs(get()); }
  size_t num_outputs() const { return lathe_num_outputs(get()); }
  const lathe_port& input(size_t index) const { return *lathe_input(get(), index); }
  const lathe_port& output(size_t index) const { return *lathe_output(get(), index); }

  /// Inputs and outputs in the order of the program.
  std::vector<Array> Run(std::span<const ArrayView> inputs,
                         const lathe_run_options* options = nullptr) const {
    std::vector<lathe_input_view> in;
    for (const ArrayView& a : inputs) {
      in.push_back({a.element, a.data, a.shape.data(), a.shape.size()});
    }
    Outputs outputs{*this, std::vector<std::optional<Array>>(num_outputs())};
    ThrowIf(lathe_run_into(get(), in.data(), in.size(), &Outputs::Make, &outputs, options));
    std::vector<Array> results;
    for (std::optional<Array>& array : outputs.arrays) results.push_back(std::move(*array));
    return results;
  }

  /// The names of the parameters that runs set, sorted.
  std::vector<std::string> MutableParameters() const {
    std::vector<std::string> names(lathe_parameter_count(get()));
    for (size_t i = 0; i < names.size(); ++i) names[i] = lathe_parameter_name(get(), i);
    return names;
  }
  /// A mutable parameter as it is between two runs: a copy.
  Array GetParameter(std::string_view name) const {
    const std::string key(name);
    size_t bytes = 0;
    ThrowIf(lathe_parameter_get(get(), key.c_str(), nullptr, 0, &bytes));
    for (size_t i = 0; i < lathe_parameter_count(get()); ++i) {
      const lathe_port& port = *lathe_parameter(get(), i);
      if (key != port.name) continue;
      std::vector<int64_t> shape;
      for (size_t a = 0; a < port.rank; ++a) shape.push_back(port.dims[a].value);
      Array array(port.element, std::move(shape), bytes);
      ThrowIf(lathe_parameter_get(get(), key.c_str(), array.data(), bytes, nullptr));
      return array;
    }
    const std::string message = "parameter '" + key + "' is a constant: no run sets it";
    throw ModelError(LATHE_INVALID_ARGUMENT, "parameter/constant", message, message);
  }
  /// The next run begins with it, which has the parameter's type and shape.
  void SetParameter(std::string_view name, const ArrayView& value) const {
    const lathe_input_view view = {value.element, value.data, value.shape.data(),
                                   value.shape.size()};
    ThrowIf(lathe_parameter_set(get(), std::string(name).c_str(), &view));
  }

  /// For the functions of lathe/runtime.h.
  const lathe_program* get() const { return program_.get(); }

 private:
  // Made when their shapes are known, which the program may compute.
  struct Outputs {
    const Model& model;
    std::vector<std::optional<Array>> arrays;

    static void* Make(void* user, size_t i, const int64_t* shape, size_t rank,
                      size_t bytes) noexcept {
      auto* outputs = static_cast<Outputs*>(user);
      try {
        return outputs->arrays[i]
            .emplace(outputs->model.output(i).element, std::vector<int64_t>(shape, shape + rank),
                     bytes)
            .data();
      } catch (const std::bad_alloc&) {
        return nullptr;  // which is an error of the run
      }
    }
  };
  struct Free {
    void operator()(lathe_program* program) const { lathe_program_free(program); }
  };
  std::unique_ptr<lathe_program, Free> program_;
};

}  // namespace lathe::runtime
