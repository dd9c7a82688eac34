"""onnxruntime's Python interface on Lathe.

    import lathe.onnxruntime as ort

    session = ort.InferenceSession("resnet50.onnx")
    (scores,) = session.run(None, {"data": image})

For programs that cannot be changed, `lathe.onnxruntime.install()` makes `import onnxruntime` give
this package from there on. docs/onnxruntime.md says what each call does.
"""

from lathe.onnxruntime._alias import install, uninstall
from lathe.onnxruntime._binding import IOBinding
from lathe.onnxruntime._enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtCompileApiFlags,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from lathe.onnxruntime._metadata import ModelMetadata, NodeArg
from lathe.onnxruntime._options import RunOptions, SessionOptions
from lathe.onnxruntime._platform import (
    AdapterFormat,
    LoraAdapter,
    ModelCompiler,
    OrtArenaCfg,
    OrtEpDevice,
    OrtExternalInitializerInfo,
    OrtHardwareDevice,
    OrtSyncStream,
    __version__,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_device,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    register_execution_provider_library,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
    unregister_execution_provider_library,
)
from lathe.onnxruntime._providers import get_all_providers, get_available_providers
from lathe.onnxruntime._session import InferenceSession
from lathe.onnxruntime._values import (
    OrtDevice,
    OrtMemoryInfo,
    OrtValue,
    SparseTensor,
    copy_tensors,
)
from lathe.onnxruntime import capi  # last: it gives what is above again

package_name = "onnxruntime"
version = __version__
