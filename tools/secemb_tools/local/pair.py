"""Two servers for one task: set up as in docs/operating.md, started and stopped together."""

import asyncio
import shutil
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_party.storage.files import write_file
from secemb_shared.catalogue import FILE, Catalogue, digest_of
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import StartError
from secemb_tools.local.process import HERE, Ports, Service, free_ports
from secemb_tools.operate.certificate import make_identity
from secemb_tools.operate.directory import SECRET, Addresses, ServerDirectory, install, private_pem
from secemb_tools.operate.pairing import dump, export_pair, import_pair
from secemb_tools.operate.task_files import write_task

PORTS = 7  # for devices on server 0 and 1, the peer channel, then operator and metrics of server 0 and of server 1
START_SECONDS = 60.0
_PAUSE = 0.05
_CHECK_SECONDS = 0.5  # between two checks that both servers are still running


class Pair:
    """Two servers, each with its directory, mutual TLS between them, SQLite, and open enrolment unless it is closed.

    With `relayed` the task becomes one whose devices may send everything through server 0; for a task that already
    is one, give server 1's `identity`, whose public half it contains. With `tls` devices connect over HTTPS too.
    With a `catalogue` the task's devices show ids and titles.
    """

    def __init__(
        self,
        folder: Path,
        task: TaskSpec,
        *,
        evaluate_every: int = 0,
        relayed: bool = False,
        identity: Ed25519PrivateKey | None = None,
        ports: Sequence[int] = (),  # one for each of `PORTS`, those for devices first; none: free ones
        open_enrolment: bool = True,
        tls: bool = False,
        catalogue: Catalogue | None = None,
        variables: Mapping[str, str] | None = None,  # further settings of server 0
        allowed_origins: Sequence[str] = (),  # of web pages that may be devices
        start_seconds: float = START_SECONDS,  # a large first model takes longer
    ) -> None:
        ports = ports or free_ports(PORTS)
        self._catalogue = catalogue.encode() if catalogue is not None and len(catalogue) else None
        self.task = task if self._catalogue is None else replace(task, catalogue=digest_of(self._catalogue))
        self.ca = folder / "devices.pem" if tls else None  # the CA file for devices
        self.servers = (
            Service(0, folder / "server0", Ports(ports[0], *ports[3:5]), ca=self.ca),
            Service(1, folder / "server1", Ports(ports[1], *ports[5:7]), ca=self.ca),
        )
        self._folder, self._evaluate_every, self._open_enrolment = folder, evaluate_every, open_enrolment
        self._more, self._allowed_origins = dict(variables or {}), allowed_origins
        self._start_seconds = start_seconds
        self.peer_port = ports[2]
        self.peer_via: int | None = None  # a local port that forwards there, for measurements in between
        self._set_up(peer_port=ports[2], relayed=relayed, identity=identity)

    @property
    def urls(self) -> tuple[str, str]:
        """Return the addresses that devices call."""
        return self.servers[0].url, self.servers[1].url

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run both servers."""
        try:
            for pause in self.starting():
                time.sleep(pause)
            yield
        finally:
            self.stop()

    def starting(self) -> Iterator[float]:
        """Start both servers; yield pauses for the caller to sleep until both are ready."""
        for server in self.servers:
            server.launch(self._variables(server.role))
        end = time.monotonic() + self._start_seconds
        for server in self.servers:
            while not server.is_ready():
                if server.has_ended() or time.monotonic() > end:
                    raise StartError(f"server {server.role} did not start: {server.failure()}")
                yield _PAUSE

    def check(self) -> None:
        """Raise if a server has stopped unexpectedly."""
        for server in self.servers:
            if server.has_ended():
                raise StartError(f"server {server.role} stopped unexpectedly: {server.failure()}")

    async def supervise(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work while both servers run; raise if one of them stops unexpectedly."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_CHECK_SECONDS)
                self.check()
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    def stop(self) -> None:
        """Stop both processes cleanly."""
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.wait()

    def _variables(self, role: int) -> dict[str, str]:
        variables: dict[str, str] = {}
        if self.ca is not None:
            for name in ("DEVICES", "OPERATOR"):
                variables[f"SECEMB_{name}__TLS_CERT"] = "tls/devices.crt"
                variables[f"SECEMB_{name}__TLS_KEY"] = "secrets/devices.key"
        if self._allowed_origins:
            variables["SECEMB_DEVICES__ALLOWED_ORIGINS"] = " ".join(self._allowed_origins)
        if role == 1:
            return variables
        variables |= {
            "SECEMB_DEVICES__OPEN_ENROLMENT": "true" if self._open_enrolment else "false",
            "SECEMB_ROUNDS__EVALUATE_EVERY": str(self._evaluate_every),
        } | self._more
        if self.peer_via is not None:
            variables["SECEMB_PEER__URL"] = f"https://{HERE}:{self.peer_via}"
        return variables

    def _set_up(self, *, peer_port: int, relayed: bool, identity: Ed25519PrivateKey | None) -> None:
        first, second = self.servers
        for server in self.servers:
            at = Addresses(
                host=HERE,
                bind=HERE,
                port=server.ports.devices,
                peer_bind=HERE,
                peer_port=peer_port,
                operator_port=server.ports.operator,
                metrics_port=server.ports.metrics,
            )
            server.operator_token = install(server.folder, server.role, at).operator_token
        if self.ca is not None:
            self._add_certificate(self.ca)
        if identity is not None:
            write_file(ServerDirectory(second.folder).relay_identity, private_pem(identity), mode=SECRET)
        if relayed:
            self.task = replace(self.task, relay_key=export_pair(second.folder).relay_key or "")
        write_task(self.task, self._folder / "task", self._catalogue)
        if self._catalogue is not None:
            shutil.copy2(self._folder / "task" / "server1" / FILE, second.folder / "task")
        for file in (self._folder / "task" / "server0").iterdir():
            shutil.copy2(file, first.folder / "task")
        for mine, other in ((first, second), (second, first)):
            path = self._folder / f"{mine.role}.pair.json"
            path.write_text(dump(export_pair(mine.folder)))
            import_pair(other.folder, path, replace=False)

    def _add_certificate(self, ca: Path) -> None:
        """Give both servers one certificate for this machine, and write it to the CA file for devices."""
        identity = make_identity(HERE)
        write_file(ca, identity.certificate)
        for server in self.servers:
            write_file(server.folder / "tls" / "devices.crt", identity.certificate)
            write_file(server.folder / "secrets" / "devices.key", identity.key, mode=SECRET)
