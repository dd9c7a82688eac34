"""What onnxruntime's extension module has: exceptions, enumerations, options, values."""

from lathe.onnxruntime._binding import IOBinding as SessionIOBinding
from lathe.onnxruntime._enums import (
    ArenaExtendStrategy,
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtCompileApiFlags,
    OrtDeviceMemoryType,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from lathe.onnxruntime._errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)
from lathe.onnxruntime._metadata import ModelMetadata, NodeArg
from lathe.onnxruntime._options import RunOptions, SessionOptions, get_default_session_options
from lathe.onnxruntime._platform import (
    LoraAdapter,
    OrtArenaCfg,
    OrtEpDevice,
    OrtExternalInitializerInfo,
    OrtHardwareDevice,
    OrtSyncStream,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_device,
    get_ep_devices,
    get_hardware_devices,
    get_version_string,
    has_collective_ops,
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
    OrtValueVector,
    SparseTensor,
    copy_tensors,
)
