#include "python/src/values.h"

#include <dlpack/dlpack.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

#include "lathe/support/dlpack.h"
#include "lathe/support/error.h"
#include "python/src/numpy.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

Error NotTaken(const std::string& what, const std::string& why) {
  return Error(ErrorCode::kType, "type/python", StrCat(what, ": ", why));
}

// What numpy or another library says; an interrupt stays one.
Error NotTaken(const std::string& what, nb::python_error& raised) {
  if (raised.matches(PyExc_KeyboardInterrupt)) throw std::move(raised);
  return NotTaken(what, StrCat(nb::cast<std::string>(raised.type().attr("__name__")), ": ",
                               nb::cast<std::string>(nb::str(raised.value()))));
}

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

ElementType IntegerOf(bool is_signed, Py_ssize_t bytes) {
  switch (bytes) {
    case 1:
      return is_signed ? ElementType::kI8 : ElementType::kU8;
    case 2:
      return is_signed ? ElementType::kI16 : ElementType::kU16;
    case 4:
      return is_signed ? ElementType::kI32 : ElementType::kU32;
    case 8:
      return is_signed ? ElementType::kI64 : ElementType::kU64;
    default:
      return ElementType::kUndefined;
  }
}

// Of a buffer's format in native byte order (the syntax of Python's module struct, and numpy's Z).
ElementType ElementOfFormat(const char* format, Py_ssize_t bytes) {
  if (format == nullptr) return ElementType::kU8;
  std::string_view text = format;
  if (!text.empty() && std::strchr("@=<", text[0]) != nullptr) text.remove_prefix(1);
  if (text == "Zf") return ElementType::kC64;
  if (text == "Zd") return ElementType::kC128;
  if (text.size() != 1) return ElementType::kUndefined;
  switch (text[0]) {
    case '?':
      return ElementType::kBool;
    case 'e':
      return ElementType::kF16;
    case 'f':
      return ElementType::kF32;
    case 'd':
      return ElementType::kF64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return IntegerOf(/*is_signed=*/true, bytes);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return IntegerOf(/*is_signed=*/false, bytes);
    default:
      return ElementType::kUndefined;
  }
}

std::string TextOf(nb::handle object, const std::string& what) {
  if (PyBytes_Check(object.ptr())) {
    return {PyBytes_AsString(object.ptr()), static_cast<size_t>(PyBytes_Size(object.ptr()))};
  }
  Py_ssize_t size = 0;
  const char* text =
      PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8AndSize(object.ptr(), &size) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    throw NotTaken(what, StrCat("its elements are strings; one is a ", TypeName(object)));
  }
  return {text, static_cast<size_t>(size)};
}

Shape ShapeOf(nb::handle array) {
  Shape shape;
  for (const nb::handle dim : array.attr("shape")) shape.push_back(nb::cast<int64_t>(dim));
  return shape;
}

Tensor StringsOf(nb::handle array, const std::string& what) {
  Tensor tensor(ElementType::kString, ShapeOf(array));
  const std::span<std::string> out = tensor.mutable_data<std::string>();
  size_t i = 0;
  for (const nb::handle item : array.attr("ravel")().attr("tolist")()) {
    out[i++] = TextOf(item, what);
  }
  return tensor;
}

nb::object Copied(nb::handle array) {
  return Numpy("array")(array, nb::arg("order") = "C", nb::arg("copy") = true);
}

// An array with one byte per element, packed.
Tensor Packed(ElementType element, nb::handle array) {
  const nb::object bytes = Copied(array).attr("view")(ArrayTypeOf(element).storage);
  const runtime::OutputView from = MemoryOf(bytes);
  Tensor tensor(element, ShapeOf(array));
  internal::PackBits(element, from.data, tensor.num_elements(), tensor.mutable_raw());
  return tensor;
}

// Of numbers, strings and sequences of them: numpy finds the type unless it is known.
nb::object ArrayOf(nb::handle object, ElementType expected, const std::string& what) {
  const bool plain = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) ||
                     PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
                     PyUnicode_Check(object.ptr()) || PyComplex_Check(object.ptr());
  if (!plain && !nb::hasattr(object, "__array__")) {
    throw NotTaken(what, StrCat("a ", TypeName(object), " is not an array"));
  }
  try {
    if (!plain || expected == ElementType::kUndefined) return Numpy("asarray")(object);
    const ArrayType& type = ArrayTypeOf(expected);
    return Numpy("asarray")(object, type.shown.is_valid() ? type.shown : type.storage);
  } catch (nb::python_error& error) {
    throw NotTaken(what, error);
  }
}

// A tensor that gives itself by DLPack, such as torch's, not yet taken over.
DLManagedTensor* ManagedOf(nb::handle object, const std::string& what) {
  constexpr int kCpu = 1;
  try {
    const nb::tuple device(object.attr("__dlpack_device__")());
    if (nb::cast<int>(device[0]) != kCpu) {
      throw Error(ErrorCode::kUnsupported, "unsupported/device",
                  StrCat(what, " is on a device; move it to the CPU"));
    }
    const nb::object capsule = object.attr("__dlpack__")();
    void* managed = PyCapsule_GetPointer(capsule.ptr(), "dltensor");
    if (managed == nullptr) throw nb::python_error();
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    return static_cast<DLManagedTensor*>(managed);
  } catch (nb::python_error& error) {
    throw NotTaken(what, error);
  }
}

bool IsAligned(const void* data, ElementType element) {
  return reinterpret_cast<uintptr_t>(data) % AlignmentOf(element) == 0;
}

// Releases what another library's or the interpreter's memory is held by, from any thread.
std::shared_ptr<const void> Holding(const Py_buffer& buffer) {
  return {new Py_buffer(buffer), [](Py_buffer* held) {
            if (nb::is_alive()) {
              const nb::gil_scoped_acquire acquire;
              PyBuffer_Release(held);
            }
            delete held;
          }};
}

void CheckFits(ElementType given, const Shape& its, ElementType element,
               std::span<const int64_t> shape, const std::string& what) {
  if (given != element && !(element == ElementType::kIndex && given == ElementType::kI64)) {
    throw NotTaken(what, StrCat("the array is ", Name(given), "; the output is ", Name(element)));
  }
  if (std::ranges::equal(its, shape)) return;
  throw Error(ErrorCode::kShape, "shape/python",
              StrCat(what, ": the array has shape ", ShapeToString(its), "; the output has ",
                     ShapeToString(shape)));
}

Error NotAsItIs(const std::string& what) {
  return {ErrorCode::kInvalidArgument, "python/layout",
          StrCat(what, ": the array is not writable, row-major and aligned")};
}

// Of a tensor of another library, which keeps it.
runtime::OutputView DlpackMemory(nb::handle array, ElementType element,
                                 std::span<const int64_t> shape, const std::string& what) {
  DLManagedTensor* managed = ManagedOf(array, what);
  void* data = static_cast<char*>(managed->dl_tensor.data) + managed->dl_tensor.byte_offset;
  const Tensor tensor = FromDlpack(managed);
  CheckFits(tensor.element_type(), tensor.shape(), element, shape, what);
  const bool shared = tensor.byte_size() == 0 || tensor.raw() == data;
  if (!shared || !IsAligned(data, element)) throw NotAsItIs(what);
  return {data, tensor.byte_size()};
}

nb::object ArrayOf(const Tensor& tensor) {
  const ElementType element = tensor.element_type();
  if (element == ElementType::kString) {
    nb::list texts;
    for (const std::string& text : tensor.data<std::string>()) {
      texts.append(nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                                  "surrogateescape")));
    }
    nb::object flat = Numpy("empty")(tensor.num_elements(), ArrayTypeOf(element).storage);
    flat[nb::ellipsis()] = texts;
    return flat.attr("reshape")(ShapeTuple(tensor.shape()));
  }
  nb::object array = EmptyArray(element, tensor.shape());
  void* out = MemoryOf(array).data;
  if (IsSubByte(element)) {
    internal::UnpackBits(element, tensor.raw(), tensor.num_elements(), out);
  } else if (tensor.byte_size() > 0) {
    std::memcpy(out, tensor.raw(), tensor.byte_size());
  }
  return Shown(std::move(array), element);
}

}  // namespace

ArrayInput::ArrayInput(nb::handle object, ElementType expected, const std::string& what) {
  const bool is_array = IsArray(object);
  if (!is_array && nb::hasattr(object, "__dlpack__")) {
    TakeTensor(FromDlpack(ManagedOf(object, what)));
  } else if (!(is_array || PyObject_CheckBuffer(object.ptr()) != 0) || !TakeBuffer(object)) {
    TakeArray(is_array ? nb::borrow(object) : ArrayOf(object, expected, what), what);
  }
  if (expected == ElementType::kIndex && element_ == ElementType::kI64) element_ = expected;
}

ArrayInput::ArrayInput(ArrayInput&& other) noexcept
    : element_(other.element_),
      data_(other.data_),
      shape_(std::move(other.shape_)),
      buffer_(std::exchange(other.buffer_, {})),
      tensor_(std::move(other.tensor_)) {}

ArrayInput& ArrayInput::operator=(ArrayInput&& other) noexcept {
  std::swap(element_, other.element_);
  std::swap(data_, other.data_);
  std::swap(shape_, other.shape_);
  std::swap(buffer_, other.buffer_);
  std::swap(tensor_, other.tensor_);
  return *this;
}

ArrayInput::~ArrayInput() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

// False, and nothing is held, if the memory cannot be read as it lies there.
bool ArrayInput::TakeBuffer(nb::handle object) {
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    buffer_ = {};
    return false;
  }
  element_ = ElementOfFormat(buffer_.format, buffer_.itemsize);
  if (element_ == ElementType::kUndefined || PyBuffer_IsContiguous(&buffer_, 'C') == 0 ||
      !IsAligned(buffer_.buf, element_)) {
    PyBuffer_Release(&buffer_);
    buffer_ = {};
    return false;
  }
  data_ = buffer_.buf;
  shape_.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
  return true;
}

void ArrayInput::TakeArray(nb::object array, const std::string& what) {
  const nb::object dtype = array.attr("dtype");
  const ElementType element = ElementOf(dtype);
  if (element == ElementType::kUndefined) {
    throw NotTaken(
        what, StrCat("no element type is like numpy's ", nb::cast<std::string>(nb::str(dtype))));
  }
  if (element == ElementType::kString) return TakeTensor(StringsOf(array, what));
  if (IsSubByte(element)) return TakeTensor(Packed(element, array));
  if (!nb::cast<bool>(dtype.attr("isnative"))) {
    array = array.attr("astype")(dtype.attr("newbyteorder")("="));
  }
  const ArrayType& type = ArrayTypeOf(element);
  if (type.shown.is_valid()) {
    if (!nb::cast<bool>(array.attr("flags").attr("c_contiguous"))) array = Copied(array);
    array = array.attr("view")(type.storage);
  }
  if (!TakeBuffer(array)) {
    const bool taken = TakeBuffer(Copied(array));
    LATHE_CHECK(taken, what, " could not be copied");
  }
  element_ = element;
}

void ArrayInput::TakeTensor(Tensor tensor) {
  element_ = tensor.element_type();
  data_ = tensor.raw();
  shape_ = tensor.shape();
  tensor_ = std::move(tensor);
}

Tensor ArrayInput::ToTensor() && {
  if (tensor_) return std::move(tensor_);
  const auto bytes = static_cast<size_t>(buffer_.len);
  auto memory = Buffer::Wrap(data_, bytes, Holding(std::exchange(buffer_, {})));
  return Tensor::FromBuffer(element_, std::move(shape_), std::move(memory));
}

bool IsTorch(nb::handle object) {
  const nb::object module = nb::getattr(object.type(), "__module__", nb::none());
  if (!nb::isinstance<nb::str>(module)) return false;
  const std::string_view name = nb::cast<nb::str>(module).c_str();
  return name == "torch" || name.starts_with("torch.");
}

RtValue ValueOf(nb::handle object, ElementType expected, bool is_list, const std::string& what) {
  if (object.is_none()) return RtValue::AbsentOptional();
  if (is_list && (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()))) {
    RtValue::List list;
    for (const nb::handle item : object) list.push_back(ValueOf(item, expected, false, what));
    return RtValue::OfList(std::move(list));
  }
  if (PyDict_Check(object.ptr())) {
    RtValue::Dict dict;
    for (const auto& [key, item] : nb::borrow<nb::dict>(object)) {
      RtValue::Key k = PyLong_Check(key.ptr()) ? RtValue::Key(nb::cast<int64_t>(key))
                                               : RtValue::Key(TextOf(key, what));
      dict.emplace(std::move(k), ValueOf(item, expected, false, what));
    }
    return RtValue::OfDict(std::move(dict));
  }
  return ArrayInput(object, expected, what).ToTensor();
}

nb::object ObjectOf(const RtValue& value) {
  if (value.is_tensor()) return ArrayOf(value.tensor());
  if (value.is_list()) {
    nb::list list;
    for (const RtValue& item : value.list()) list.append(ObjectOf(item));
    return list;
  }
  if (!value.is_dict()) return nb::none();
  nb::dict dict;
  for (const auto& [key, item] : value.dict()) {
    dict[std::visit([](const auto& k) { return nb::cast(k); }, key)] = ObjectOf(item);
  }
  return dict;
}

nb::object ShapeTuple(std::span<const int64_t> shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  return tuple;
}

// numpy's own memory begins 16 bytes after a line of the cache: each vector is written to two,
// which takes up to twice as long where there is a lot of it.
nb::object EmptyArray(ElementType element, std::span<const int64_t> shape) {
  constexpr int64_t kLine = 64, kLot = 64 << 10;
  static const nb::handle empty = Numpy("empty"), ndarray = Numpy("ndarray");
  const nb::object& type = ArrayTypeOf(element).storage;
  const nb::object extents = ShapeTuple(shape);
  const int64_t bytes =
      IsSubByte(element) ? 0
                         : NumElements(Shape(shape.begin(), shape.end())) * BitWidth(element) / 8;
  if (bytes < kLot) return empty(extents, type);
  const nb::object memory = empty(bytes + kLine, "uint8");
  const auto begin = reinterpret_cast<uintptr_t>(MemoryOf(memory).data);
  return ndarray(extents, type, memory, (kLine - begin % kLine) % kLine);
}

nb::object Shown(nb::object array, ElementType element) {
  const ArrayType& type = ArrayTypeOf(element);
  return type.shown.is_valid() ? array.attr("view")(type.shown) : array;
}

runtime::OutputView MemoryOf(nb::handle array) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_WRITABLE) != 0) throw nb::python_error();
  const runtime::OutputView view{buffer.buf, static_cast<uint64_t>(buffer.len)};
  PyBuffer_Release(&buffer);  // the array keeps its memory
  return view;
}

runtime::OutputView MemoryOf(nb::handle array, ElementType element, std::span<const int64_t> shape,
                             const std::string& what) {
  if (!IsArray(array)) {
    if (nb::hasattr(array, "__dlpack__")) return DlpackMemory(array, element, shape, what);
    throw NotTaken(what, StrCat("a ", TypeName(array), " is not an array"));
  }
  CheckFits(ElementOf(array.attr("dtype")), ShapeOf(array), element, shape, what);
  if (!nb::cast<bool>(array.attr("flags").attr("carray"))) throw NotAsItIs(what);
  const ArrayType& type = ArrayTypeOf(element);
  return MemoryOf(type.shown.is_valid() ? array.attr("view")(type.storage) : nb::borrow(array));
}

std::string PathOf(nb::handle path) {
  return nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
}

std::shared_ptr<Buffer> BufferOf(nb::handle object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  return Buffer::Wrap(buffer.buf, static_cast<size_t>(buffer.len), Holding(buffer));
}

}  // namespace lathe::python
