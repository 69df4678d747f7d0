"""Small servers on this machine for tests of the transport: what they answer is given byte by byte."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from secemb_tools.operate.certificate import Identity, make_identity


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


@contextmanager
def serving(
    reply: bytes, *, identity: Path | None = None, linger: float = 0.0, gate: threading.Barrier | None = None
) -> Iterator[Served]:
    """Answer every request on every connection with the same bytes until the block ends.

    With a gate, answer when as many requests have come, here and elsewhere, as it waits for.
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
                while data := line.recv(65536):
                    served.received[index] += data
                    if b"\r\n\r\n" in served.received[index]:
                        stopping.wait(linger)
                        if gate is not None:
                            gate.wait()
                        line.sendall(reply)

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
