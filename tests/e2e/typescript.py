"""The TypeScript device as `make` built it, and its files as a web server would hand them out."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sdk" / "typescript"
BUILT = PACKAGE / "dist" / "src" / "index.js"
MISSING = "the TypeScript device is not built: install Node 20.19 or newer with npm, then `make typescript`"


def is_built(environment: Mapping[str, str]) -> bool:
    """Tell whether there is a build; with NODE_TESTS=required its absence is a failure, not a skip."""
    found = BUILT.exists() and shutil.which("node") is not None
    if not found and environment.get("NODE_TESTS") == "required":
        raise RuntimeError(f"{MISSING} (NODE_TESTS=required)")
    return found


def sources_newer_than_the_build() -> list[str]:
    built = BUILT.stat().st_mtime
    sources = [path for room in ("src", "test", "scripts") for path in (PACKAGE / room).rglob("*.ts")]
    return [path.name for path in sources if path.stat().st_mtime > built + 1]


needs_typescript = pytest.mark.skipif(not is_built(os.environ), reason=MISSING)

# What a bundler would do: tell the browser where the packages are.
IMPORTS = {f"@noble/{name}/": f"/node_modules/@noble/{name}/" for name in ("ciphers", "curves", "hashes")}
