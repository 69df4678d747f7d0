"""Two real servers as an operator would run them: set up by `secemb` commands, each in a process of its own."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import httpx
from typer.testing import CliRunner

from secemb_party.storage import Model, ModelFiles, Shape
from secemb_sdk.trust import make_context
from secemb_shared.catalogue import FILE
from secemb_shared.messages import TaskSpec
from secemb_tools.cli.main import app
from secemb_tools.local.process import free_ports

TASK = {
    "name": "processes",
    "items": 400,  # enough for trees with several levels
    "width": 3,
    "capacity": 6,
    "dense-size": 2,
    "cohort": 4,
    "min-cohort": 2,
    "clip": 1024,
    "fraction-bits": 8,
    "rounds": 1000,
    "join-seconds": 15,
    "upload-seconds": 40,
    "optimiser": "sgd",
    "guard": 0,
    "row-rate": 1,
    "bias-rate": 1,
    "schedule": "constant",
    "dense-rate": 1,
    "initial-scale": 0,
}
START_SECONDS = 180.0
HERE = "127.0.0.1"


def secemb(*words: object) -> str:
    """Run a command in this process and return what it printed; it must succeed."""
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def wait_for(what: str, holds: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


def fetch(url: str, *, seconds: float = 10.0, **options: Any) -> httpx.Response:
    """Return the answer to a GET without TLS; by itself httpx would load all authorities of the system each time."""
    return httpx.get(url, timeout=seconds, trust_env=False, verify=make_context(url), **options)


@dataclass
class Server:
    """One server: its directory and, while it runs, its process."""

    role: int
    folder: Path
    port: int
    operator_port: int
    metrics_port: int
    variables: dict[str, str] = field(default_factory=dict)
    host: str = HERE
    database: str | None = None  # the URL of its ledger in PostgreSQL
    inside: tuple[str, ...] = ()  # the command that runs it elsewhere, in a network namespace
    arguments: tuple[str, ...] = ()  # further ones of `secemb serve`
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def operator_url(self) -> str:
        return f"http://{self.host}:{self.operator_port}"

    @property
    def metrics_url(self) -> str:
        return f"http://{self.host}:{self.metrics_port}"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def launch(self) -> None:
        command = [*self.inside, sys.executable, "-m", "secemb_tools", "serve", "--config", str(self.folder)]
        command += self.arguments
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=os.environ | self.variables)

    def await_alive(self) -> None:
        wait_for(f"server {self.role} starts, see {self.log}", self.is_alive)

    def start(self) -> None:
        self.launch()
        self.await_alive()

    def is_alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        listeners = (self.url, self.operator_url, self.metrics_url)
        return all(self.get("/healthz", url) == 200 for url in listeners)

    def get(self, path: str, url: str | None = None) -> int:
        """Return the status of an answer, of the listener for Prometheus unless another is named."""
        try:
            return fetch((url or self.metrics_url) + path, seconds=5.0).status_code
        except httpx.TransportError:
            return 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process that this test has started."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """`kill -9`: no chance to finish anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in good order and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(timeout=40)

    def ask(self, statement: str) -> list[Any]:
        """Read this server's ledger from outside, also while the process stands still."""
        if self.database is not None:
            return asyncio.run(_ask(self.database, statement))
        with closing(sqlite3.connect(f"file:{self.folder}/data/ledger.db?mode=ro", uri=True, timeout=5)) as ledger:
            return ledger.execute(statement).fetchall()

    def state(self, number: int) -> str:
        """Return the state of a round, or nothing if it is not known here."""
        found = self.ask(f"SELECT state FROM rounds WHERE number = {number}")
        return str(found[0][0]) if found else ""


@dataclass
class Servers:
    """Both servers, the task and the tokens of some devices."""

    folder: Path
    pair: tuple[Server, Server]
    task: TaskSpec
    tokens: list[str]
    operator_tokens: list[str]
    peer_port: int

    def start(self) -> None:
        for server in self.pair:
            server.launch()
        for server in self.pair:
            server.await_alive()
        wait_for("both servers are ready", lambda: all(server.get("/readyz") == 200 for server in self.pair))
        # Server 0 lets devices in once server 1 knows the round; who asks before that is told to come back.
        wait_for("a round is open", lambda: self.pair[1].state(0) != "")

    def end(self) -> None:
        """Leave no process behind, whatever happened."""
        for server in self.pair:
            if server.process is not None and server.process.poll() is None:
                server.kill()

    def model(self, role: int, version: int) -> Model:
        folder = self.pair[role].folder / "data" / "models"
        return ModelFiles(folder, self.task.task_id, Shape.of(self.task)).load(version)


def set_up(
    folder: Path,
    *,
    devices: int = 4,
    changes: Mapping[str, object] | None = None,
    databases: Mapping[int, str] | None = None,
    relayed: bool = False,
    there: str = HERE,
    without: Collection[str] = (),  # options of `TASK` that are left out
) -> Servers:
    """Make both directories by the commands of docs/operating.md; `databases` are for ledgers in PostgreSQL, by role.

    Server 1 listens at the address `there`.
    """
    zero, operator0, metrics0, one, operator1, metrics1, peer = free_ports(7)
    first, second = folder / "server0", folder / "server1"
    listening0 = ("--port", zero, "--operator-port", operator0, "--metrics-port", metrics0)
    listening1 = ("--port", one, "--operator-port", operator1, "--metrics-port", metrics1)
    for_peer = ("--peer-bind", there if there == HERE else "0.0.0.0", "--peer-port", peer)
    made = [
        secemb("init", "--role", 0, "--dir", first, "--host", HERE, *listening0, "--json"),
        secemb("init", "--role", 1, "--dir", second, "--host", there, *listening1, *for_peer, "--json"),
    ]
    urls = databases or {}
    for role, url in urls.items():
        name_database((first, second)[role] / "secemb.toml", url)
    options = [
        word
        for name, value in {**TASK, **(changes or {})}.items()
        if name not in without
        for word in (f"--{name}", value)
    ]
    if relayed:
        (folder / "server1.pair.json").write_text(secemb("pair", "export", second))
        options += ["--server1", folder / "server1.pair.json", "--server0", first]
    secemb("task", "create", "--out", folder / "task", *options)
    copy_files((folder / "task" / "server0").iterdir(), first / "task")
    if (catalogue := folder / "task" / "server1" / FILE).exists():
        copy_files([catalogue], second / "task")
    for server, name in ((first, "server0.pair.json"), (second, "server1.pair.json")):
        (folder / name).write_text(secemb("pair", "export", server))
    secemb("pair", "import", second, folder / "server0.pair.json")
    secemb("pair", "import", first, folder / "server1.pair.json")
    secemb("check", second, "--offline")
    secemb("check", first, "--offline")
    names = [f"phone-{number}" for number in range(devices)]
    rows = json.loads(secemb("token", "create", *names, "--config", first, "--json"))
    return Servers(
        folder=folder,
        pair=(
            Server(0, first, zero, operator0, metrics0, database=urls.get(0)),
            Server(1, second, one, operator1, metrics1, database=urls.get(1), host=there, variables=_listening(there)),
        ),
        task=TaskSpec.decode((first / "task" / "task.json").read_bytes()),
        tokens=[row["token"] for row in rows],
        operator_tokens=[json.loads(shown)["operator_token"] for shown in made],
        peer_port=peer,
    )


async def _ask(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


def _listening(there: str) -> dict[str, str]:
    """Return the settings of a server whose listeners are not on the loopback address."""
    return {f"SECEMB_{name}__HOST": there for name in ("DEVICES", "OPERATOR", "METRICS") if there != HERE}


def name_database(settings: Path, url: str) -> None:
    """Edit the settings as docs/operating.md says."""
    lines = settings.read_text().splitlines()
    lines = [f'url = "{url}"' if line.startswith("# url = ") else line for line in lines]
    settings.write_text("\n".join(lines) + "\n")


def copy_files(files: Iterable[Path], target: Path) -> None:
    subprocess.run(["cp", "-p", *map(str, files), str(target)], check=True)
