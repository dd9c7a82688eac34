"""What onnxruntime's extension module has: exceptions, enumerations, options, values."""

from lathe.onnxruntime._binding import IOBinding as SessionIOBinding
from lathe.onnxruntime._enums import ArenaExtendStrategy as ArenaExtendStrategy
from lathe.onnxruntime._options import get_default_session_options as get_default_session_options
from lathe.onnxruntime._platform import get_hardware_devices as get_hardware_devices
from lathe.onnxruntime._values import OrtValueVector as OrtValueVector
from lathe.onnxruntime._errors import *
from lathe.onnxruntime._shared import *
