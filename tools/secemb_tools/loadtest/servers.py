"""Two services set up by the operators' own commands, each in a process of its own, for the length of a measurement."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from secemb_shared.messages import TaskSpec
from secemb_tools.bench.catalogues import WIDTH, Catalogue

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What one service has used so far."""

    cpu_seconds: float
    kernel_seconds: float
    memory_bytes: int
    largest_lag_seconds: float


class Service:
    """One service and its process."""

    def __init__(self, role: int, folder: Path, port: int) -> None:
        self.role, self.folder, self.port = role, folder, port
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.operator_token = ""

    def start(self) -> None:
        """Start the process and wait until it answers."""
        variables = {"SECEMB_DEVICES__OPEN_ENROLMENT": "true"} if self.role == 0 else {}
        command = [sys.executable, "-m", "secemb_tools", "serve", "--config", str(self.folder)]
        log = (self.folder.parent / f"server{self.role}.log").open("wb")
        self._process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | variables)
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(f"server {self.role} did not start: {Path(log.name).read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process in good order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)

    def usage(self) -> Usage:
        """Read the process's own accounts and its metrics."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        lag = re.findall(r"^secemb_event_loop_lag_seconds(?:\{[^}]*\})? (\S+)$", text, re.M)
        kernel = re.findall(r"^secemb_kernel_seconds_sum\{[^}]*\} (\S+)$", text, re.M)
        return Usage(self._cpu(), sum(map(float, kernel)), self._memory(), max(map(float, lag), default=0.0))

    def endings(self) -> list[tuple[float, int]]:
        """Return, for each published round, the seconds from sealing to published and how many sessions counted."""
        headers = {"authorization": f"Bearer {self.operator_token}"}
        rounds = httpx.get(f"{self.url}/v1/operator/rounds", headers=headers, timeout=30).raise_for_status().json()
        return [(one["ended_at"] - one["sealing_at"], one["counted"]) for one in rounds if one["state"] == "published"]

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _memory(self) -> int:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False


class Pair:
    """Two services for one catalogue."""

    def __init__(self, folder: Path, catalogue: Catalogue, *, cohort: int) -> None:
        ports = _free_ports(3)
        self.servers = (Service(0, folder / "server0", ports[0]), Service(1, folder / "server1", ports[1]))
        self._folder, self._peer_port = folder, ports[2]
        self._set_up(catalogue, cohort)
        self.task = TaskSpec.decode((folder / "server0" / "task" / "task.json").read_bytes().strip())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run both services."""
        try:
            for server in reversed(self.servers):
                server.start()
            yield
        finally:
            for server in self.servers:
                server.stop()

    def _set_up(self, catalogue: Catalogue, cohort: int) -> None:
        """Make both directories by the commands of docs/operating.md."""
        here, (first, second) = "127.0.0.1", self.servers
        for server in self.servers:
            peer = ("--peer-bind", here, "--peer-port", self._peer_port) if server.role else ()
            words = ("init", "--role", server.role, "--dir", server.folder, "--host", here, "--port", server.port)
            server.operator_token = json.loads(_secemb(*words, *peer, "--json"))["operator_token"]
        _secemb("task", "create", "--out", self._folder / "task", *_task_options(catalogue, cohort))
        for file in (self._folder / "task" / "server0").iterdir():
            shutil.copy2(file, first.folder / "task")
        for server in self.servers:
            (self._folder / f"{server.role}.pair.json").write_text(_secemb("pair", "export", server.folder))
        _secemb("pair", "import", second.folder, self._folder / "0.pair.json")
        _secemb("pair", "import", first.folder, self._folder / "1.pair.json")


def _task_options(catalogue: Catalogue, cohort: int) -> list[object]:
    options = {
        "name": catalogue.name,
        "items": catalogue.items,
        "width": WIDTH,
        "capacity": catalogue.capacity,
        "dense-size": 0,
        "cohort": cohort,
        "min-cohort": 2,
        "clip": 16,
        "fraction-bits": 16,
        "rounds": 1000,
        "join-seconds": 60,
        "upload-seconds": 300,
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _secemb(*words: object) -> str:
    command = [sys.executable, "-m", "secemb_tools", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed: {done.stderr[-1000:]}")
    return done.stdout


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
