"""Two servers for one task: set up as in docs/operating.md, started and stopped together."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_party.storage.files import write_file
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import StartError
from secemb_tools.local.process import HERE, Service, free_ports
from secemb_tools.operate.directory import SECRET, Addresses, ServerDirectory, install, private_pem
from secemb_tools.operate.pairing import dump, export_pair, import_pair
from secemb_tools.operate.tasks import write_task

START_SECONDS = 60.0
_PAUSE = 0.05


class Pair:
    """Two servers, each with its directory, mutual TLS between them, SQLite, and open enrolment.

    With `relayed` the task becomes one whose devices may send everything through server 0; for a task that is one
    already, give server 1's `identity`, whose public half it contains.
    """

    def __init__(
        self,
        folder: Path,
        task: TaskSpec,
        *,
        evaluate_every: int = 0,
        relayed: bool = False,
        identity: Ed25519PrivateKey | None = None,
    ) -> None:
        ports = free_ports(3)
        self.task = task
        self.servers = (Service(0, folder / "server0", ports[0]), Service(1, folder / "server1", ports[1]))
        self._folder, self._evaluate_every = folder, evaluate_every
        self.peer_port = ports[2]
        self.peer_via: int | None = None  # a port of this machine that forwards there, for measurements in between
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
        """Start both servers; yield pauses, for the caller to sleep, until both are ready."""
        for server in self.servers:
            server.launch(self._variables(server.role))
        end = time.monotonic() + START_SECONDS
        for server in self.servers:
            while not server.answers("/readyz"):
                if server.has_ended() or time.monotonic() > end:
                    raise StartError(f"server {server.role} did not start: {server.failure()}")
                yield _PAUSE

    def check(self) -> None:
        """Raise if a server has stopped by itself."""
        for server in self.servers:
            if server.has_ended():
                raise StartError(f"server {server.role} stopped unexpectedly: {server.failure()}")

    def stop(self) -> None:
        """Stop both processes cleanly."""
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.wait()

    def _variables(self, role: int) -> dict[str, str]:
        if role == 1:
            return {}
        variables = {
            "SECEMB_DEVICES__OPEN_ENROLMENT": "true",
            "SECEMB_ROUNDS__EVALUATE_EVERY": str(self._evaluate_every),
        }
        if self.peer_via is not None:
            variables["SECEMB_PEER__URL"] = f"https://{HERE}:{self.peer_via}"
        return variables

    def _set_up(self, *, peer_port: int, relayed: bool, identity: Ed25519PrivateKey | None) -> None:
        first, second = self.servers
        for server in self.servers:
            at = Addresses(host=HERE, bind=HERE, port=server.port, peer_bind=HERE, peer_port=peer_port)
            server.operator_token = install(server.folder, server.role, at).operator_token
        if identity is not None:
            write_file(ServerDirectory(second.folder).relay_identity, private_pem(identity), mode=SECRET)
        if relayed:
            self.task = replace(self.task, relay_key=export_pair(second.folder).relay_key or "")
        write_task(self.task, self._folder / "task")
        for file in (self._folder / "task" / "server0").iterdir():
            shutil.copy2(file, first.folder / "task")
        for mine, other in ((first, second), (second, first)):
            path = self._folder / f"{mine.role}.pair.json"
            path.write_text(dump(export_pair(mine.folder)))
            import_pair(other.folder, path, replace=False)
