"""What the SDK weighs without torch: the time of its import, and the size of the packages that it needs installed."""

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from rich.console import Console

_IMPORT = """
import json, sys, time
start = time.process_time()
import secemb_sdk
print(json.dumps({"seconds": time.process_time() - start, "torch": "torch" in sys.modules}))
"""
_TURNS = 3


def measure() -> dict[str, Any]:
    """Import the SDK in fresh processes, and add up the files of the base install."""
    found = [json.loads(subprocess.check_output([sys.executable, "-c", _IMPORT])) for _ in range(_TURNS)]
    return {
        "import_cpu_seconds": min(one["seconds"] for one in found),
        "imports_torch": any(one["torch"] for one in found),
        "installed_bytes": {name: _size(one) for name, one in sorted(_needed("secemb", {}).items())},
    }


def show(console: Console, figures: dict[str, Any]) -> None:
    """Print both."""
    sizes = sorted(figures["installed_bytes"].items(), key=lambda one: -one[1])
    parts = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes[:4])
    console.print(
        f"base install without torch: import {figures['import_cpu_seconds']:.2f} s of processor time, "
        f"{sum(size for _, size in sizes) / 1e6:.0f} MB installed ({parts}, …)"
    )


def _needed(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return a distribution and those that it needs without any extra."""
    try:
        found[name] = distribution(name)
    except PackageNotFoundError:
        return found  # needed on other systems only
    for wish in found[name].requires or ():
        other = re.split(r"[^A-Za-z0-9_.-]", wish, maxsplit=1)[0].lower().replace("_", "-")
        if "extra ==" not in wish and other not in found:
            _needed(other, found)
    return found


def _size(one: Distribution) -> int:
    if one.name == "secemb":  # installed from a checkout it is a link; count what a wheel would hold for a device
        import secemb_sdk
        import secemb_shared

        folders = (Path(str(module.__file__)).parent for module in (secemb_sdk, secemb_shared))
        return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.suffix != ".pyc")
    files = (Path(str(file.locate())) for file in one.files or ())
    return sum(file.stat().st_size for file in files if file.is_file())
