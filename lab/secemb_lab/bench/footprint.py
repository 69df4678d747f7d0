"""The footprint of the SDK without torch: its import time, and the size of the installed packages.

There is one wheel, which includes servers and tools, so all of it is on disk. A device imports two of its packages.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
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
_PRODUCT = "secemb"
_DEVICE = ("secemb_sdk", "secemb_shared")  # the packages that a device imports, out of the whole wheel


def measure() -> dict[str, Any]:
    """Import the SDK in fresh processes, and add up the files of the base install."""
    found = [json.loads(subprocess.check_output([sys.executable, "-c", _IMPORT])) for _ in range(_TURNS)]
    return {
        "import_cpu_seconds": min(one["seconds"] for one in found),
        "imports_torch": any(one["torch"] for one in found),
        "device_bytes": sum(map(_package_size, _DEVICE)),
        "installed_bytes": {name: _size(one) for name, one in sorted(_needed(_PRODUCT, {}).items())},
    }


def show(console: Console, figures: dict[str, Any]) -> None:
    """Print the imported and the installed packages."""
    sizes = sorted(figures["installed_bytes"].items(), key=lambda one: -one[1])
    parts = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes[:4])
    console.print(
        f"base install without torch: import {figures['import_cpu_seconds']:.2f} s of processor time, "
        f"{sum(size for _, size in sizes) / 1e6:.0f} MB installed ({parts}, …); "
        f"of SecEmb's own {figures['installed_bytes'][_PRODUCT] / 1e6:.1f} MB a device imports "
        f"{figures['device_bytes'] / 1e6:.1f} MB"
    )


def _needed(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return a distribution and its dependencies without extras."""
    try:
        found[name] = distribution(name)
    except PackageNotFoundError:
        return found  # needed on other systems only
    for requirement in found[name].requires or ():
        other = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        if "extra ==" not in requirement and other not in found:
            _needed(other, found)
    return found


def _size(one: Distribution) -> int:
    if one.name == _PRODUCT:  # an editable install is a link, so count the content of a wheel
        return sum(map(_package_size, (one.read_text("top_level.txt") or "").split()))
    return _files_size(Path(str(file.locate())) for file in one.files or ())


def _package_size(name: str) -> int:
    found = find_spec(name)
    folders = [] if found is None else [Path(folder) for folder in found.submodule_search_locations or ()]
    return _files_size(file for folder in folders for file in folder.rglob("*"))


def _files_size(files: Iterable[Path]) -> int:
    """Return the bytes of files, without compiled Python files."""
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file())
