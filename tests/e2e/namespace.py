"""A network namespace with one line to this one, which can be cut: packets vanish, and nobody is told."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Namespace:
    """Where another machine would be."""

    name: str
    near: str  # this side's address on the line
    far: str

    @property
    def command(self) -> tuple[str, ...]:
        """Return what runs a command there."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Let everything that is sent from there vanish, acknowledgements too."""
        _run(*self.command, "ip", "route", "add", "blackhole", f"{self.near}/32")

    def mend(self) -> None:
        """Let packets pass again."""
        _run(*self.command, "ip", "route", "del", "blackhole", f"{self.near}/32")


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Make a namespace and its line, and remove both."""
    number = os.getpid()  # tests run in several processes at once
    found = Namespace(
        f"secemb-{number}",
        *(f"10.{number >> 14 & 255}.{number >> 6 & 255}.{number << 2 & 252 | end}" for end in (1, 2)),
    )
    try:
        _run("ip", "netns", "add", found.name)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may make a network namespace, with the command ip")
    try:
        near, far = f"se{number}n", f"se{number}f"
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", found.name)
        for where, end, address in (((), near, found.near), (found.command, far, found.far)):
            _run(*where, "ip", "address", "add", f"{address}/30", "dev", end)
            _run(*where, "ip", "link", "set", end, "up")
        yield found
    finally:
        _run("ip", "netns", "delete", found.name)  # the line goes with it


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
