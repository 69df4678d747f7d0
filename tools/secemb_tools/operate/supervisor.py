"""Several replicas of one server on this machine: a process for each, and one that starts them again when they end."""

import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from secemb_party.logs import configure_logs, get_logger, name_replica
from secemb_party.settings import Operator, Settings
from secemb_tools.errors import OperationError

_LOOK_SECONDS = 0.1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_LONG = 30.0  # seconds: a replica that ran for so long had started well
_STOP_SECONDS = 40.0
_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h> of Linux


def as_replica(settings: Settings, number: int) -> Settings:
    """Return the settings of a replica on a machine with several, and prepare this process to be one.

    Replicas share the listeners for devices and for the peer. Each has its own port for Prometheus. The operator's
    page is on the first one, because logins are kept in memory.
    """
    name_replica(number)
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))  # a replica does not outlive its supervisor
    metrics = settings.metrics.model_copy(update={"port": settings.metrics.port + number})
    return settings.model_copy(update={"metrics": metrics, **({"operator": Operator()} if number else {})})


@dataclass
class _Replica:
    number: int
    command: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    pause: float = _FIRST_PAUSE
    start_at: float = 0.0

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(self.command)

    def look(self) -> None:
        """Start the process if it is due; if it has ended, plan to start it again."""
        if self.process is None:
            if time.monotonic() >= self.start_at:
                self.start()
        elif (code := self.process.poll()) is not None:
            ran = time.monotonic() - self.started_at
            self.pause = _FIRST_PAUSE if ran > _LONG else min(2 * self.pause, _LONGEST_PAUSE)
            self.process, self.start_at = None, time.monotonic() + self.pause
            get_logger().error(
                "a replica ended and is started again", number=self.number, code=code, after=round(ran, 1)
            )


def supervise(config: Path, settings: Settings, count: int, *, variables: Sequence[str] = ()) -> None:
    """Run replicas until SIGTERM or SIGINT; a replica that ends is started again."""
    if not settings.ledger.shared:
        raise OperationError(
            "replicas share one ledger in PostgreSQL: set url and shared = true in [ledger] (an SQLite file is for one"
            " process)"
        )
    configure_logs(settings.logs.level, settings.logs.format)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    command = [sys.executable, "-m", "secemb_tools", "serve", "--config", str(config), *variables]
    replicas = [_Replica(number, [*command, "--replica", str(number)]) for number in range(count)]
    get_logger().info("starting replicas", count=count)
    while not stopping.wait(_LOOK_SECONDS):
        for one in replicas:
            one.look()
    _stop([one.process for one in replicas if one.process is not None])


def _stop(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for one in processes:
        one.terminate()
    end = time.monotonic() + _STOP_SECONDS
    for one in processes:
        try:
            one.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
