"""What the figures were measured on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from secemb_tools.kernel import describe


def describe_machine() -> dict[str, str]:
    """Return what a reader needs to compare figures."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "cryptography": version("cryptography"),
        "kernel": describe().removeprefix("kernel: "),
    }


def _processor() -> str:
    """Return the processor's name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
