"""The page of `secemb dev --web`: a device in the browser, and the small backend that enrols it."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from secemb_tools.errors import OperationError
from secemb_tools.local import Pair
from secemb_tools.local.process import HERE, Service

_PAGE = Path(__file__).with_name("page")
_SDK = Path(__file__).parents[3] / "sdk" / "typescript"
_PACKAGES = ("ciphers", "curves", "hashes")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
_SECONDS = 30.0
# The browser may only run scripts from this page and connect to the two servers.
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; img-src data:; "
    "connect-src 'self' {servers}"
)


def check_built() -> None:
    """Raise unless the TypeScript device has been built."""
    if not (_SDK / "dist" / "src" / "index.js").is_file():
        raise OperationError(
            "--web needs the TypeScript device, which is not built: in a checkout run `make typescript` (it needs Node)"
        )


def address_of(port: int) -> str:
    """Return the address of the page, which both servers must allow."""
    return f"http://{HERE}:{port}"


@dataclass(frozen=True)
class Site:
    """The state of the page's backend: the pair, and a way to ask server 0 to enrol a device."""

    pair: Pair
    port: int
    _nonce: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    @property
    def origin(self) -> str:
        """Return the address of this page."""
        return address_of(self.port)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve the page in a thread."""
        site = self

        class Handler(_Handler):
            served = site

        server = ThreadingHTTPServer((HERE, self.port), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @cached_property
    def policy(self) -> str:
        """Return the content security policy of this page."""
        return _POLICY.format(nonce=self._nonce, servers=" ".join(self.pair.urls))

    def page(self) -> bytes:
        """Return the page; its import map locates the packages, as a bundler would."""
        imports = {"@secemb/device": "/sdk/index.js"}
        imports |= {f"@noble/{name}/": f"/packages/{name}/" for name in _PACKAGES}
        text = (_PAGE / "index.html").read_text(encoding="utf-8")
        return text.replace("{nonce}", self._nonce).replace("{imports}", json.dumps({"imports": imports})).encode()

    def file(self, path: str) -> Path | None:
        """Return the file at an address, if it belongs to this page."""
        rooms = {"/sdk/": _SDK / "dist" / "src", "/page/": _PAGE}
        rooms |= {f"/packages/{name}/": _SDK / "node_modules" / "@noble" / name for name in _PACKAGES}
        for prefix, room in rooms.items():
            if path.startswith(prefix):
                found = (room / path.removeprefix(prefix)).resolve()
                if found.is_relative_to(room.resolve()) and found.suffix in _TYPES and found.is_file():
                    return found
        return None

    def enrol(self) -> dict[str, Any]:
        """Enrol another device, as an app's backend does for a known user; return the data that the device needs."""
        name = f"page {secrets.token_hex(4)}"
        with _operator(self.pair.servers[0]) as client:
            made = client.post("/tokens", json={"devices": [{"name": name}]}).raise_for_status().json()
        task = self.pair.task.task_id.hex()
        return {"name": name, "token": made[0]["token"], "servers": list(self.pair.urls), "task": task}

    def seen(self) -> list[dict[str, Any]]:
        """Return the newest rounds as each server's operator sees them."""
        found = []
        for server in self.pair.servers:
            with _operator(server) as client:
                rounds = client.get("/rounds", params={"limit": 3}).raise_for_status().json()
            members = ("number", "kind", "state", "keys", "updates", "counted")
            found.append({"server": server.role, "rounds": [{name: one[name] for name in members} for one in rounds]})
        return found


class _Handler(BaseHTTPRequestHandler):
    served: Site

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/":
            self._answer(self.served.page(), _TYPES[".html"])
        elif path == "/seen":
            self._ask(self.served.seen)
        elif (file := self.served.file(path)) is not None:
            self._answer(file.read_bytes(), _TYPES[file.suffix])
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        # A page of another origin may not enrol devices here.
        if self.path == "/enrol" and self.headers.get("origin") == self.served.origin:
            self._ask(self.served.enrol)
        else:
            self.send_error(404)

    def _ask(self, asked: Any) -> None:
        try:
            self._answer(json.dumps(asked()).encode(), "application/json")
        except httpx.HTTPError:
            self.send_error(503, "a server is not responding")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", self.served.policy)
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the page itself shows its requests."""


def _operator(server: Service) -> httpx.Client:
    """Return a client for the operator API of a server."""
    return httpx.Client(
        base_url=f"{server.operator_url}/v1/operator",
        headers={"authorization": f"Bearer {server.operator_token}"},
        trust_env=False,
        verify=server.verify,
        timeout=_SECONDS,
    )
