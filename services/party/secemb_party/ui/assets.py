"""Scripts and styles, read once and served from memory under a name that changes when they do."""

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.responses import Response

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_YEAR = "private, max-age=31536000, immutable"


class Assets:
    """The files under `static` that a page may ask for."""

    def __init__(self) -> None:
        self._files = dict(_walk(resources.files("secemb_party.ui") / "static"))
        digest = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files)))
        self.edition = digest.hexdigest()[:12]

    def address(self, name: str) -> str:
        """Return where a page finds a file; browsers may keep it, because another edition has another address."""
        if name not in self._files:
            raise KeyError(f"there is no static file {name}")
        return f"/ui/static/{self.edition}/{name}"

    def response(self, name: str) -> Response | None:
        """Return a file, or nothing where there is none of this name."""
        content = self._files.get(name)
        if content is None:
            return None
        kind = _TYPES[name[name.rindex(".") :]]
        return Response(content, media_type=kind, headers={"cache-control": _YEAR})


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(tuple(_TYPES)):
            found.append((prefix + entry.name, entry.read_bytes()))
    return found
