"""OrtValue, and the devices it can be on: the memory of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from lathe.onnxruntime import _enums, _errors, _types
from lathe.onnxruntime._types import Array

_DEVICES = {"cpu": 0, "cuda": 1, "gpu": 1, "webgpu": 1, "fpga": 2, "npu": 3, "cann": 3, "dml": 4}


class OrtDevice:
    """A place for tensors."""

    def __init__(self, kind: OrtDevice | int, memory: int = 0, *ids: int) -> None:
        """Of another device, or of numbers: kind, memory, (vendor), id."""
        self._numbers: tuple[int, int, int, int]
        if isinstance(kind, OrtDevice):
            self._numbers = kind._numbers
        else:
            vendor, device = ids if len(ids) == 2 else (0, *(ids or (0,)))
            self._numbers = (int(kind), int(memory), int(vendor), int(device))

    @staticmethod
    def make(name: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """Raises Exception for a name that onnxruntime does not know."""
        try:
            kind = _DEVICES[name.lower()]
        except KeyError:
            raise Exception(f"Unsupported device type: {name}") from None
        return OrtDevice(kind, 0, max(int(vendor_id), 0), device_id)

    @staticmethod
    def cpu() -> int:
        return 0

    @staticmethod
    def cuda() -> int:
        return 1

    @staticmethod
    def default_memory() -> int:
        return 0

    def _get_c_device(self) -> OrtDevice:
        return self

    def device_type(self) -> int:
        return self._numbers[0]

    def device_mem_type(self) -> int:
        return self._numbers[1]

    def device_vendor_id(self) -> int:
        return self._numbers[2]

    def device_id(self) -> int:
        return self._numbers[3]


def require_cpu(device_type: str, device_id: int = 0, vendor_id: int = -1) -> None:
    """Raises RuntimeError for every device but the processor."""
    if OrtDevice.make(device_type, device_id, vendor_id).device_type() != OrtDevice.cpu():
        raise RuntimeError(
            f"Can't allocate memory on the device '{device_type}' using this package of "
            "OnnxRuntime: Lathe computes on the CPU"
        )


def array_at(address: int, element: _types.ElementType, shape: Iterable[int]) -> Array:
    """The memory at an address as an array; its owner keeps it alive."""
    shape = tuple(int(extent) for extent in shape)
    dtype = _storage(element)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * count).from_address(address)
    return np.frombuffer(memoryview(memory).cast("B"), dtype).reshape(shape)


def _storage(element: _types.ElementType) -> np.dtype[Any]:
    if element is _types.STRING:
        raise RuntimeError("strings have no memory of their own")
    if element.dtype is None:
        raise RuntimeError(
            f"No corresponding Numpy type for Tensor Type. {element.ort}: install ml_dtypes"
        )
    return element.dtype


class OrtValue:
    """A tensor, a list of tensors or another value that a session takes or gives.

    A tensor is a numpy array, whose memory is shared, not copied.
    """

    _value: Any
    _type: str

    def __init__(self, value: OrtValue, numpy_obj: Any = None, session: Any = None) -> None:
        """Of another OrtValue, which it shares; `of` makes one of an array."""
        if not isinstance(value, OrtValue):
            raise ValueError(f"an OrtValue is made of another one, not of {type(value).__name__}")
        self._value, self._type = value._value, value._type

    @classmethod
    def of(cls, value: Any, type_name: str | None = None) -> OrtValue:
        """Of an array or of what a session gives: a list, a dict, None, of this type."""
        made = cls.__new__(cls)
        made._value = value
        made._type = type_name or _type_of(value)
        return made

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: Any = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Shares the array's memory if it is contiguous. Raises RuntimeError for other devices."""
        if not isinstance(device_type, OrtDevice):
            require_cpu(device_type, device_id, vendor_id)
        if not isinstance(numpy_obj, np.ndarray):
            raise RuntimeError(f"an OrtValue holds a numpy array, not a {type(numpy_obj).__name__}")
        return cls.of(np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> OrtValue:
        """The bytes of an array as elements of a type that numpy lacks, as TensorProto.BFLOAT16."""
        element = _types.of_argument(int(onnx_element_type))
        dtype = _storage(element)
        if data.itemsize != dtype.itemsize:
            raise RuntimeError(
                f"Items size in the incoming array: {data.itemsize} "
                f"specified by onnxtype: {dtype.itemsize}"
            )
        return cls.of(np.ascontiguousarray(data).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: Any = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Memory that holds anything. `element_type` is numpy's, or a number of TensorProto's."""
        if memory_info is None and not isinstance(device_type, OrtDevice):
            require_cpu(device_type, device_id, vendor_id)
        return cls.of(np.empty(tuple(shape), _storage(_types.of_argument(element_type))))

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """Refused, as SparseTensor is."""
        raise no_sparse_tensors()

    @classmethod
    def from_dlpack(cls, data: Any, is_bool: bool = False) -> OrtValue:
        """Shares the memory of a tensor with `__dlpack__`, or of a capsule.

        `is_bool` says that bytes are bools, which old capsules cannot tell.
        """
        array = np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return cls.of(array.view(bool) if is_bool and array.dtype == np.uint8 else array)

    def _get_c_value(self) -> OrtValue:
        return self

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _tensor(self, what: str) -> Array:
        if not isinstance(self._value, np.ndarray):
            raise RuntimeError(f"{what}: {self._type} is not a tensor")
        return self._value

    def shape(self) -> list[int]:
        return list(self._tensor("shape").shape)

    def data_type(self) -> str:
        """Such as "tensor(float)" or "seq(tensor(int64))"."""
        return self._type

    def element_type(self) -> int:
        """The number of TensorProto.DataType."""
        self._tensor("element_type")
        return _types.within(self._type).number

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._tensor("data_ptr").ctypes.data

    def tensor_size_in_bytes(self) -> int:
        return self._tensor("tensor_size_in_bytes").nbytes

    def device_name(self) -> str:
        """Always "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """False for an optional without a value."""
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return self._type.startswith("seq(tensor(")

    def as_sparse_tensor(self) -> NoReturn:
        raise no_sparse_tensors()

    def numpy(self) -> Array:
        """The tensor itself, not a copy."""
        return self._tensor("Only OrtValues that are Tensors are convertible to Numpy objects")

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copies an array or another OrtValue of as many elements of the same type into this."""
        if isinstance(data, OrtValue):
            data = data.numpy()
        if not isinstance(data, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        own = self._tensor("update_inplace")
        if data.size != own.size or data.dtype != own.dtype:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue.: "
                f"{data.dtype}{list(data.shape)} for {own.dtype}{list(own.shape)}"
            )
        own[...] = data.reshape(own.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is None:
            return np.asarray(self.numpy(), dtype=dtype)
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._tensor("__dlpack__").__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def to_dlpack(self) -> Any:
        """A capsule that shares the memory."""
        return self.__dlpack__()


class _Capsule:
    """A bare capsule as an object that numpy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _type_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        element = _types.of_dtype(value.dtype)
        if element is None:
            raise RuntimeError(f"arrays of {value.dtype} hold no element type of tensors")
        return element.tensor
    if isinstance(value, list):
        return f"seq({_type_of(value[0])})" if value else "seq(tensor(float))"
    raise RuntimeError(f"a {type(value).__name__} is not a value of a session")


class OrtValueVector(list[OrtValue]):
    """A list of OrtValues, with the calls that some clients make on it."""

    def push_back(self, value: OrtValue) -> None:
        self.append(value)

    def push_back_batch(self, values: Sequence[OrtValue], *_: Any) -> None:
        self.extend(values)

    def reserve(self, count: int) -> None:
        """Accepted."""

    def shrink_to_fit(self) -> None:
        """Accepted."""

    def dlpack_at(self, index: int) -> Any:
        return self[index].to_dlpack()

    def element_type_at(self, index: int) -> int:
        return self[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        return [i for i, value in enumerate(self) if value.data_type() == "tensor(bool)"]

    def to_dlpacks(self, convert: Callable[[Any], Any] | None = None) -> list[Any]:
        """Capsules, or what `convert` makes of each."""
        capsules = [value.to_dlpack() for value in self]
        return capsules if convert is None else [convert(capsule) for capsule in capsules]


def no_sparse_tensors() -> Exception:
    return _errors.new(
        _errors.NotImplemented, "sparse tensors are not supported; give the dense array"
    )


class SparseTensor:
    """Refused: programs of Lathe hold dense tensors."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise no_sparse_tensors()

    @classmethod
    def sparse_coo_from_numpy(cls, *_: Any, **__: Any) -> NoReturn:
        raise no_sparse_tensors()

    @classmethod
    def sparse_csr_from_numpy(cls, *_: Any, **__: Any) -> NoReturn:
        raise no_sparse_tensors()

    @classmethod
    def blocksparse_from_numpy(cls, *_: Any, **__: Any) -> NoReturn:
        raise no_sparse_tensors()


class OrtMemoryInfo:
    """Where an input or an output lies: in the memory of this process."""

    def __init__(
        self,
        name: str = "Cpu",
        allocator_type: _enums.OrtAllocatorType = _enums.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
        device_id: int = 0,
        mem_type: _enums.OrtMemType = _enums.OrtMemType.DEFAULT,
    ) -> None:
        self.name, self.allocator_type = name, allocator_type
        self.device_id, self.mem_type = device_id, mem_type
        self.device_mem_type = _enums.OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copies each value of `src` into that of `dst` at the same place."""
    if len(src) != len(dst):
        raise RuntimeError(f"{len(src)} tensors cannot be copied into {len(dst)}")
    for source, target in zip(src, dst):
        target.update_inplace(source)
