"""A server in its own process: its ports, its log and the resources it uses.

A command that starts servers runs in the foreground, with a temporary directory, until it is done or until Ctrl-C.
"""

import asyncio
import itertools
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

import httpx

from secemb_party.http.health import FRESH_SECONDS
from secemb_sdk.trust import make_context

HERE = "127.0.0.1"
# Below the range that systems assign to clients: until the server listens, no client gets its port by chance.
_FOR_SERVICES = range(15_000, 32_000)
_MEMORY = Path("/dev/shm")  # noqa: S108 (the directory made in it has an unguessable name)
_ROOM = 1 << 29

Result = TypeVar("Result")


def free_ports(count: int, among: Sequence[int] = _FOR_SERVICES) -> list[int]:
    """Return different free ports, in random order."""
    return list(islice(filter(is_free, SystemRandom().sample(among, len(among))), count))


def is_free(port: int) -> bool:
    """Tell whether a server can listen on this port."""
    with socket.socket() as probe:
        # As in the servers, so that closed connections do not block a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HERE, port))
        except OSError:
            return False
    return True


_PROC = Path("/proc")
_STOP_SECONDS = 10.0
_ASK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that one server has used so far."""

    cpu_seconds: float
    kernel_seconds: dict[str, float]  # by operation
    memory_bytes: int
    largest_lag_seconds: float


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used; needs /proc."""
    fields = (_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one server listens."""

    devices: int
    operator: int
    metrics: int


class Service:
    """One server and its process."""

    def __init__(self, role: int, folder: Path, ports: Ports, *, ca: Path | None = None) -> None:
        self.role, self.folder, self.ports, self._ca = role, folder, ports, ca
        scheme = "http" if ca is None else "https"
        self.url = f"{scheme}://{HERE}:{ports.devices}"  # for devices
        self.operator_url = f"{scheme}://{HERE}:{ports.operator}"
        self._metrics_url = f"http://{HERE}:{ports.metrics}"
        self.operator_token = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Return the path of the server's log."""
        return self.folder.with_suffix(".log")

    @property
    def pid(self) -> int:
        """Return the process id."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @cached_property
    def verify(self) -> ssl.SSLContext:
        """Return the `verify` argument of an HTTP client for this server's certificate."""
        return make_context(self.url, ca=self._ca)

    def launch(self, variables: dict[str, str]) -> None:
        """Start the process in its own session, so that Ctrl-C does not reach it; the parent stops it."""
        command = [sys.executable, "-m", "secemb_tools.local.child", str(self.folder), str(os.getpid())]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_own(variables), start_new_session=True
            )

    def has_ended(self) -> bool:
        """Tell whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def failure(self) -> str:
        """Return how the process ended, if it has, and the last lines of its log above the level of info."""
        code = None if self._process is None else self._process.poll()
        ended = "" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        lines = self.log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if not line.startswith("{") or '"level": "info"' not in line]
        return "\n".join([ended, *telling[-5:]])[:2000]

    def is_ready(self) -> bool:
        """Tell whether the server can serve."""
        try:
            return self._read("readyz", seconds=5).status_code == 200
        except httpx.TransportError:
            return False

    def terminate(self) -> None:
        """Ask the process to stop."""
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        """Wait until the process has ended; kill it if it does not."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def ask(self, path: str) -> Any:
        """Return an answer from the operator API."""
        headers = {"authorization": f"Bearer {self.operator_token}"}
        url = f"{self.operator_url}/v1/operator/{path}"
        answer = httpx.get(url, headers=headers, timeout=_ASK_SECONDS, trust_env=False, verify=self.verify)
        return answer.raise_for_status().json()

    def metrics(self) -> str:
        """Return the metrics in Prometheus's format."""
        return self._read("metrics", seconds=_ASK_SECONDS).text

    def usage(self) -> Usage:
        """Read the current statistics and metrics of the process; needs /proc."""
        time.sleep(FRESH_SECONDS)  # servers cache their metrics for this long
        text = self.metrics()
        lag = re.findall(r"^secemb_event_loop_lag_largest_seconds (\S+)$", text, re.M)
        kernel = re.findall(r'^secemb_kernel_seconds_sum\{operation="(\w+)"\} (\S+)$', text, re.M)
        operations = {name: float(seconds) for name, seconds in kernel}
        return Usage(processor_seconds(self.pid), operations, self.memory_bytes(), float(lag[0]))

    def cpu_seconds(self) -> float | None:
        """Return the processor time that the process has used, or None without /proc."""
        return processor_seconds(self.pid) if (_PROC / str(self.pid) / "stat").exists() else None

    def memory_bytes(self) -> int:
        """Return the peak memory of the process so far; needs /proc."""
        status = (_PROC / str(self.pid) / "status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024

    def endings(self) -> list[tuple[float, int]]:
        """Return, for each published round, the seconds from sealing to publishing and the sessions counted."""
        rounds = self.ask("rounds")
        return [(one["ended_at"] - one["sealing_at"], one["counted"]) for one in rounds if one["state"] == "published"]

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage of a round after its last upload, for the fastest published round."""
        ended = [one for one in self.ask("rounds") if one["state"] == "published"]
        times = ("sealing_at", "sealed_at", "shared_at", "reconstructed_at", "ended_at")
        return {
            begins.removesuffix("_at"): min(one[ends] - one[begins] for one in ended)
            for begins, ends in itertools.pairwise(times)
        }

    def _read(self, path: str, *, seconds: float) -> httpx.Response:
        # Without a context httpx would load all authorities of the system, 20 ms each time.
        context = make_context(self._metrics_url)
        return httpx.get(f"{self._metrics_url}/{path}", timeout=seconds, trust_env=False, verify=context)


def _own(variables: dict[str, str]) -> dict[str, str]:
    """Return this process's variables without settings meant for another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SECEMB_")} | variables


async def stopped_by_signals(work: Coroutine[Any, Any, Result]) -> Result:
    """Let a signal cancel the work at its next await; a second one does not interrupt the clean-up."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
    return await task


@contextmanager
def workspace(prefix: str) -> Iterator[Path]:
    """Create a directory for the duration of a command: in memory if there is room, otherwise in TMPDIR."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_memory()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> Path | None:
    if "TMPDIR" in os.environ or not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _ROOM else None
