"""onnxruntime's Python interface on Lathe.

    import lathe.onnxruntime as ort

    session = ort.InferenceSession("resnet50.onnx")
    (scores,) = session.run(None, {"data": image})

For programs that cannot be changed, `lathe.onnxruntime.install()` makes `import onnxruntime` give
this package from there on. docs/onnxruntime.md says what each call does.
"""

from lathe.onnxruntime._alias import install as install, uninstall as uninstall
from lathe.onnxruntime._binding import IOBinding as IOBinding
from lathe.onnxruntime._enums import OrtDeviceVendorId as OrtDeviceVendorId
from lathe.onnxruntime._platform import (
    __version__ as __version__,
    AdapterFormat as AdapterFormat,
    ModelCompiler as ModelCompiler,
    preload_dlls as preload_dlls,
    print_debug_info as print_debug_info,
)
from lathe.onnxruntime._shared import *
from lathe.onnxruntime import capi as capi  # last: it gives what is above again

package_name = "onnxruntime"
version = __version__
