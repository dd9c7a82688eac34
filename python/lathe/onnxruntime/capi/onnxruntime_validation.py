"""What onnxruntime checks when it is imported."""

from lathe.onnxruntime._platform import __version__


def check_distro_info() -> None:
    """Accepted."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """Name, version, and the version of CUDA: none."""
    return "onnxruntime", __version__, ""
