"""Small servers on this machine for tests of the transport: what they answer is given byte by byte."""

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from secemb_tools.operate.certificate import Identity, make_identity

_DROP_SECONDS = 0.3
_TLS_HELLO = b"\x16\x03"


@dataclass
class Served:
    """Where a server listens, and what it was sent."""

    url: str
    received: list[bytes] = field(default_factory=list)  # by connection

    @property
    def everything(self) -> bytes:
        return b"".join(self.received)


def answer(body: bytes = b"", *, status: str = "200 OK", headers: str = "", length: int | None = None) -> bytes:
    """Return an HTTP answer."""
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\ncontent-length: {size}\r\n{headers}\r\n".encode() + body


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


@contextmanager
def serving(
    reply: bytes,
    *,
    identity: Path | None = None,
    linger: float = 0.0,
    drops: bytes = b"",
    cuts: bool = False,
    gate: threading.Barrier | None = None,
) -> Iterator[Served]:
    """Answer every request on every connection with the same bytes until the block ends.

    With a gate, answer when as many requests have come, here and elsewhere, as it waits for. Drops follow
    the reply, one byte at a time. With `cuts`, the connection ends with the answer.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    scheme = "http" if identity is None else "https"
    served, stopping = Served(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"), threading.Event()
    context = None
    if identity is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity)

    def talk(connection: socket.socket) -> None:
        index = len(served.received)
        served.received.append(b"")
        with suppress(OSError, ssl.SSLError, threading.BrokenBarrierError), connection:
            connection.settimeout(5.0)
            line = connection if context is None else context.wrap_socket(connection, server_side=True)
            with line:
                waiting = b""
                while data := line.recv(65536):
                    served.received[index] += data
                    waiting += data
                    if waiting.startswith(_TLS_HELLO):  # as HTTP servers answer what is not HTTP
                        line.sendall(answer(status="400 Bad Request"))
                        return
                    if not _is_whole(waiting):
                        continue
                    waiting = b""
                    stopping.wait(linger)
                    if gate is not None:
                        gate.wait()
                    line.sendall(reply)
                    for drop in drops:
                        if stopping.wait(_DROP_SECONDS):
                            return
                        line.sendall(bytes([drop]))
                    if cuts:
                        return

    def listen() -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        stopping.set()
        thread.join()
        listener.close()


def write_identity(folder: Path, name: str, host: str = "127.0.0.1") -> tuple[Path, Path, Identity]:
    """Return files with a new key and certificate, and with the certificate alone."""
    identity = make_identity(host)
    both, alone = folder / f"{name}.pem", folder / f"{name}-certificate.pem"
    both.write_bytes(identity.key + identity.certificate)
    alone.write_bytes(identity.certificate)
    return both, alone, identity
