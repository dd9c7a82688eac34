"""Where onnxruntime has its classes of Python."""

from lathe.onnxruntime._binding import IOBinding
from lathe.onnxruntime._enums import OrtDeviceVendorId
from lathe.onnxruntime._platform import AdapterFormat, ModelCompiler
from lathe.onnxruntime._providers import check_and_normalize_provider_args
from lathe.onnxruntime._session import InferenceSession, Session
from lathe.onnxruntime._values import OrtDevice, OrtValue, SparseTensor, copy_tensors
