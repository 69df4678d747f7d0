"""Where commands are tried: servers that rest, servers that run, ratings and kept runs, made when they are needed."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from pathlib import Path

from tests.e2e.commands import run
from tests.e2e.servers import set_up
from tests.unit.made_up_ratings import made_up_ratings, write_as_movielens

from secemb_shared.messages import TaskSpec
from secemb_tools.local import Pair

Words = tuple[object, ...]
SMALL_RUN: Words = ("--devices", 12, "--cohort", 4, "--items", 60, "--rounds", 4)
TASK: Words = ("--items", 60, "--width", 3, "--capacity", 6, "--cohort", 4, "--min-cohort", 2, "--clip", 4)
RUNNING = TaskSpec(
    name="commands",
    items=200,
    row_width=5,
    dense_size=0,
    capacity=10,
    tables=1,
    bins=40,
    ring_bits=32,
    fraction_bits=16,
    bound=2**20,
    cohort=2,
    min_cohort=2,
    rounds=1000,
    join_seconds=8,
    upload_seconds=16,
)


class Place:
    """A directory with everything that a command may need."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack = folder, ExitStack()
        self._numbers: Iterator[int] = count()

    def close(self) -> None:
        """End the servers, if they were started."""
        self._stack.close()

    def new(self, suffix: str = "") -> Path:
        """Return a path that nothing has been written to."""
        return self.folder / f"new{next(self._numbers)}{suffix}"

    def file(self, text: str, suffix: str = ".txt") -> Path:
        """Return a file with this text."""
        path = self.new(suffix)
        path.write_text(text)
        return path

    @cached_property
    def resting(self) -> Path:
        """Return a directory with server0, server1 and their pair files; nobody has started them."""
        set_up(self.folder / "resting", devices=1, relayed=True)
        return self.folder / "resting"

    def server(self, role: int) -> Path:
        """Return a copy of a server's directory, which a command may change."""
        return Path(shutil.copytree(self.resting / f"server{role}", self.new()))

    def server_with_a_relay_key(self) -> Path:
        """Return server 1 with one key that devices seal to."""
        server = self.server(1)
        run("relay-key", "rotate", "--config", server)
        return server

    def server_with_an_operator(self, name: str) -> Path:
        """Return server 0 with one operator token more."""
        server = self.server(0)
        run("operator", "add", name, "--config", server)
        return server

    def server_with_next_keys(self) -> Path:
        """Return server 0 in the middle of a rotation."""
        server = self.server(0)
        run("pair", "rotate", server)
        return server

    @cached_property
    def pair(self) -> Pair:
        """Return two servers that run."""
        pair = Pair(self.folder / "pair", RUNNING)
        self._stack.enter_context(pair.running())
        return pair

    @property
    def both(self) -> Words:
        """Return how an operator of both names the servers."""
        files = [self.file(server.operator_token) for server in self.pair.servers]
        urls = [server.operator_url for server in self.pair.servers]
        servers = zip(urls, files, strict=True)
        return tuple(word for url, file in servers for word in ("--server", url, "--token-file", file))

    @cached_property
    def with_tasks(self) -> Words:
        """Return how an operator names a server that runs several tasks."""
        pair = Pair(self.folder / "tasks", RUNNING)
        self._stack.enter_context(pair.running())
        return "--server", pair.servers[0].operator_url, "--token-file", self.file(pair.servers[0].operator_token)

    def second_task(self) -> str:
        """Return the name of a task that the server runs beside the first one."""
        name, out = f"second{next(self._numbers)}", self.new()
        run("task", "create", "--name", name, "--out", out, *TASK)
        run("task", "start", out / "server0" / "task.json", *self.with_tasks, "--reason", "another app")
        return name

    def stopped_task(self) -> str:
        """Return the name of a task that the server has run beside the first one."""
        name = self.second_task()
        run("task", "stop", name, *self.with_tasks, "--reason", "its app is gone")
        return name

    @property
    def task(self) -> Words:
        """Return how a device is told where to go."""
        return "--server0", self.pair.urls[0], "--server1", self.pair.urls[1], "--task", self.pair.task.task_id.hex()

    @cached_property
    def device(self) -> Path:
        """Return the home of a device that has joined."""
        home = self.folder / "device"
        run("device", "join", home, *self.task, "--ratings", self.own_ratings())
        return home

    def own_ratings(self) -> Path:
        """Return what one person has rated."""
        return self.file("item,rating\n3,5\n17,1\n90,4\n", ".csv")

    @cached_property
    def ratings(self) -> Path:
        """Return a rating set as a table."""
        rows = [f"{person},{item},{(person * item) % 5 + 1}" for person in range(8) for item in range(person, 12)]
        return self.file("\n".join(["user,item,rating", *rows]) + "\n", ".csv")

    @cached_property
    def films(self) -> Path:
        """Return a rating set as GroupLens publishes it."""
        folder = self.new()
        folder.mkdir()
        return write_as_movielens(made_up_ratings(people=20, items=40, count=400), folder)

    @cached_property
    def runs(self) -> Path:
        """Return a directory with two runs that are kept."""
        for name in ("one", "two"):
            run("simulate", *SMALL_RUN, "--runs", self.folder / "runs", "--name", name)
        return self.folder / "runs"

    def own_runs(self) -> Path:
        """Return a copy of them, which a command may change."""
        return Path(shutil.copytree(self.runs, self.new()))
