"""Responses from templates, scripts and downloads, with headers that block content from other sites."""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, BinaryIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from secemb_party.ui import format
from secemb_party.ui.login_sessions import Session
from secemb_shared.messages import TaskSpec

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_YEAR = "private, max-age=31536000, immutable"


class Assets:
    """The files under `static` that a page may request."""

    def __init__(self) -> None:
        self._files = dict(_walk(resources.files("secemb_party.ui") / "static"))
        digest = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files)))
        self.edition = digest.hexdigest()[:12]

    def address(self, name: str) -> str:
        """Return the URL of a file; browsers may cache it, because a changed file has a different URL."""
        if name not in self._files:
            raise KeyError(f"there is no static file {name}")
        return f"/ui/static/{self.edition}/{name}"

    def response(self, name: str) -> Response | None:
        """Return a file, or None if there is none with this name."""
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


_PIECE = 1 << 16


class Download(StreamingResponse):
    """Sends an open file and closes it; a range request gets the whole file."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        headers = {
            "content-length": str(os.fstat(file.fileno()).st_size),
            "content-disposition": f'attachment; filename="{_plain(name)}"',
        }
        super().__init__(iter(lambda: file.read(_PIECE), b""), media_type="application/octet-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._file:
            await super().__call__(scope, receive, send)


def nameless(write: Callable[[Path], None]) -> BinaryIO:
    """Return the file that `write` writes to the path it is given; the path is removed before this returns."""
    with tempfile.TemporaryDirectory(prefix="secemb-export-") as folder:
        path = Path(folder) / "file"
        write(path)
        return path.open("rb")


def _plain(name: str) -> str:
    """Return a name that is valid in any file system."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "download"


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PAGES = (
    ("Live", "/ui"),
    ("Rounds", "/ui/rounds"),
    ("Quality", "/ui/quality"),
    ("Privacy", "/ui/privacy"),
    ("Guard", "/ui/guard"),
    ("Devices", "/ui/devices"),
    ("Peer", "/ui/peer"),
    ("Model", "/ui/model"),
    ("Capacity", "/ui/capacity"),
    ("Control", "/ui/control"),
)


class Renderer:
    """The templates of one server's page."""

    def __init__(self, assets: Assets, *, role: int, task: TaskSpec) -> None:
        self._environment = Environment(
            loader=PackageLoader("secemb_party.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "number": format.number,
            "size": format.size,
            "duration": format.duration,
            "day": format.day,
            "digest": format.digest,
            "short": partial(format.digest, groups=4),
        }
        self._environment.globals |= {
            "asset": assets.address,
            "pages": PAGES,
            "role": role,
            "task": task.name,
            "task_id": task.task_id.hex(),
        }

    def answer(
        self,
        template: str,
        facts: Mapping[str, Any],
        *,
        now: float,
        session: Session | None = None,
        status: int = 200,
    ) -> HTMLResponse:
        """Return a page or a part of one."""
        text = self._render(template, facts, now=now, session=session)
        # With "no-referrer", browsers send "Origin: null" with forms, so the login could not detect https behind a
        # proxy.
        headers = {"content-security-policy": POLICY, "cache-control": "no-store", "referrer-policy": "same-origin"}
        return HTMLResponse(text, status, headers)

    def line(self, template: str, facts: Mapping[str, Any], *, now: float) -> str:
        """Return a part of a page on one line, as event streams require."""
        return " ".join(self._render(template, facts, now=now, session=None).split())

    def _render(self, template: str, facts: Mapping[str, Any], *, now: float, session: Session | None) -> str:
        spoken = {"moment": format.moment, "when": format.when, "ago": format.relative}
        times = {name: partial(say, now=now) for name, say in spoken.items()}
        return self._environment.get_template(template).render(**facts, **times, now=now, session=session)
