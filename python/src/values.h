#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <span>
#include <string>

#include "lathe/runtime/executor.h"
#include "lathe/support/rt_value.h"

/// Values of programs from and to Python objects. All functions need the interpreter's lock.
namespace lathe::python {

/// A tensor that a Python object holds, as long as this lives: in the object's own memory if that
/// is row-major, aligned and of a type with bytes of its own, else in a copy. Movable.
///
/// Taken: numpy arrays (ml_dtypes, too; strings as objects, StringDType or fixed width), what has
/// `__dlpack__` (memory of the CPU), the buffer protocol or `__array__`, numbers, strings, and
/// nested sequences of them, which become arrays of the `expected` type.
class ArrayInput {
 public:
  ArrayInput() = default;
  /// `what` names the value in messages, as "input 'x'". Errors: type/python, unsupported/dlpack.
  ArrayInput(nanobind::handle object, ElementType expected, const std::string& what);
  ArrayInput(ArrayInput&& other) noexcept;
  ArrayInput& operator=(ArrayInput&& other) noexcept;
  ~ArrayInput();

  ElementType element() const { return element_; }
  /// Not for strings. Valid as long as this.
  runtime::InputView view() const { return {element_, data_, shape_}; }
  /// Without copying; holds the object.
  Tensor ToTensor() &&;

 private:
  bool TakeBuffer(nanobind::handle object);
  void TakeArray(nanobind::object array, const std::string& what);
  void TakeTensor(Tensor tensor);

  ElementType element_ = ElementType::kUndefined;
  const void* data_ = nullptr;
  Shape shape_;
  Py_buffer buffer_ = {};  // of the object; its `obj` is null if there is none
  Tensor tensor_;
};

/// Whether it is a torch.Tensor.
bool IsTorch(nanobind::handle object);

/// As ArrayInput; None is an absent optional, a list or tuple a list if the value `is_list`, a dict
/// with keys of one kind a dict.
RtValue ValueOf(nanobind::handle object, ElementType expected, bool is_list,
                const std::string& what);

/// A numpy array, list, dict or None. Copies.
nanobind::object ObjectOf(const RtValue& value);

/// (2, 3)
nanobind::object ShapeTuple(std::span<const int64_t> shape);

/// A numpy array of the element type that is to be written, in the type of the elements' storage;
/// `Shown` gives it the type that users see.
nanobind::object EmptyArray(ElementType element, std::span<const int64_t> shape);
nanobind::object Shown(nanobind::object array, ElementType element);

/// The memory of an array that EmptyArray has made, or of an array or a tensor of another library
/// that a user gives, which must be writable and row-major (python/layout), and have this type and
/// shape (type/python, shape/python). `what` names it in messages.
runtime::OutputView MemoryOf(nanobind::handle array);
runtime::OutputView MemoryOf(nanobind::handle array, ElementType element,
                             std::span<const int64_t> shape, const std::string& what);

/// The text of a str or an os.PathLike.
std::string PathOf(nanobind::handle path);

/// The memory of a bytes-like object, which lives as long.
std::shared_ptr<Buffer> BufferOf(nanobind::handle object);

}  // namespace lathe::python
