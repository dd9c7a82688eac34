"""What both onnxruntime and its extension module have."""

from lathe.onnxruntime._enums import (
    ExecutionMode as ExecutionMode,
    ExecutionOrder as ExecutionOrder,
    GraphOptimizationLevel as GraphOptimizationLevel,
    OrtAllocatorType as OrtAllocatorType,
    OrtCompileApiFlags as OrtCompileApiFlags,
    OrtDeviceMemoryType as OrtDeviceMemoryType,
    OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType as OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType,
    OrtMemType as OrtMemType,
    OrtSparseFormat as OrtSparseFormat,
)
from lathe.onnxruntime._metadata import ModelMetadata as ModelMetadata, NodeArg as NodeArg
from lathe.onnxruntime._options import RunOptions as RunOptions, SessionOptions as SessionOptions
from lathe.onnxruntime._platform import (
    create_and_register_allocator as create_and_register_allocator,
    create_and_register_allocator_v2 as create_and_register_allocator_v2,
    disable_telemetry_events as disable_telemetry_events,
    enable_telemetry_events as enable_telemetry_events,
    get_build_info as get_build_info,
    get_device as get_device,
    get_ep_devices as get_ep_devices,
    get_version_string as get_version_string,
    has_collective_ops as has_collective_ops,
    LoraAdapter as LoraAdapter,
    OrtArenaCfg as OrtArenaCfg,
    OrtEpDevice as OrtEpDevice,
    OrtExternalInitializerInfo as OrtExternalInitializerInfo,
    OrtHardwareDevice as OrtHardwareDevice,
    OrtSyncStream as OrtSyncStream,
    register_execution_provider_library as register_execution_provider_library,
    set_default_logger_severity as set_default_logger_severity,
    set_default_logger_verbosity as set_default_logger_verbosity,
    set_global_thread_pool_sizes as set_global_thread_pool_sizes,
    set_seed as set_seed,
    unregister_execution_provider_library as unregister_execution_provider_library,
)
from lathe.onnxruntime._providers import (
    get_all_providers as get_all_providers,
    get_available_providers as get_available_providers,
)
from lathe.onnxruntime._session import InferenceSession as InferenceSession
from lathe.onnxruntime._values import (
    copy_tensors as copy_tensors,
    OrtDevice as OrtDevice,
    OrtMemoryInfo as OrtMemoryInfo,
    OrtValue as OrtValue,
    SparseTensor as SparseTensor,
)
