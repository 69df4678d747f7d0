"""A small Ray cluster on this machine: each of its nodes is a raylet with a few CPUs, and can be killed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from secemb_party.compute.ray.messages import Options
from secemb_tools.errors import OperationError
from secemb_tools.local.process import free_ports

_STORE_BYTES = 200_000_000  # of each node; the smallest that Ray accepts is 75 MB
_START_SECONDS, _END_SECONDS = 180.0, 20.0
_STARTED = b"Ray runtime started"
_PORTS = range(21_000, 29_000)  # Ray's own workers listen below 20,000


class LocalCluster:
    """Nodes on this machine, the first of which has the cluster's directory of everything."""

    def __init__(self, folder: Path, *, cpus: int, nodes: int = 1) -> None:
        self._folder, self._cpus = folder, cpus
        self.port, *self._agents = free_ports(1 + nodes, _PORTS)
        self._nodes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """Return the address at which it is reached."""
        return f"127.0.0.1:{self.port}"

    def options(self, workers: int) -> Options:
        """Return how a server reaches it."""
        return Options(address=self.address, workers=workers, memory_bytes=None, start_seconds=60.0 * len(self._agents))

    def start(self) -> None:
        """Start all nodes, one after the other: they share files. The last is ready some seconds later."""
        head = ("--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self._folder}")
        join = (f"--address={self.address}",)
        for place, agent in enumerate(self._agents):
            if place:
                self._wait_for(place - 1)
            self._nodes.append(self._start(agent, *(join if place else head)))

    def _wait_for(self, place: int) -> None:
        end = monotonic() + _START_SECONDS
        while _STARTED not in self._log(place).read_bytes():
            if monotonic() > end or self._nodes[place].poll() is not None:
                raise OperationError(f"a node of Ray did not start: {self._log(place).read_text()[-500:]}")
            sleep(0.1)

    def _log(self, place: int) -> Path:
        return self._folder / f"node{place}.txt"

    def _start(self, agent: int, *options: str) -> "subprocess.Popen[bytes]":
        common = (
            "--block",
            f"--num-cpus={self._cpus}",
            f"--object-store-memory={_STORE_BYTES}",
            "--disable-usage-stats",
            "--node-ip-address=127.0.0.1",
            f"--dashboard-agent-listen-port={agent}",
        )
        with self._log(len(self._nodes)).open("wb") as log:
            return subprocess.Popen(
                [str(Path(sys.executable).with_name("ray")), "start", *options, *common],
                env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End all nodes, the first one last."""
        for node in reversed(self._nodes):
            _end(node)
        self._nodes = []


def _end(node: "subprocess.Popen[bytes]") -> None:
    node.terminate()  # it then ends the processes that it has started
    with suppress(subprocess.TimeoutExpired):
        node.wait(_END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


@contextmanager
def local_cluster(*, cpus: int, nodes: int = 1) -> Iterator[LocalCluster]:
    """Run a cluster in a folder of its own; its path is short because sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = LocalCluster(Path(folder), cpus=cpus, nodes=nodes)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
