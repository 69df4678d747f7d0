"""Hostile clients in a separate process, so that they take no time from honest devices; it ends with its parent."""

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection

from secemb_lab.attack.attacks import ATTACKS
from secemb_lab.attack.clients import Target
from secemb_tools.local.child import end_with_parent

_STOP_SECONDS = 5.0


class Attacker:
    """A process that runs one attack at a time."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    @contextmanager
    def attacking(self, name: str, last: int) -> Iterator[None]:
        """Run an attack, up to this round, while the caller does something else; raise its error if it fails."""
        self._tell((name, last))
        yield  # any error here ends the process as well
        self._tell(None)

    def _tell(self, order: tuple[str, int] | None) -> None:
        try:
            self._line.send(order)
            words = self._line.recv()
        except (EOFError, OSError):
            words = "its process has ended"
        if words:
            raise RuntimeError(f"the attack failed: {words}")


@contextmanager
def hostile_process(target: Target) -> Iterator[Attacker]:
    """Start the process, and end it."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_main, args=(target, theirs, os.getpid()), daemon=True)
    process.start()
    theirs.close()  # so that the connection closes with the process
    try:
        yield Attacker(ours)
    finally:
        process.terminate()
        process.join(_STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _main(target: Target, line: Connection, parent: int) -> None:
    end_with_parent(parent)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_obey(target, line))


async def _obey(target: Target, line: Connection) -> None:
    while True:
        name, last = await asyncio.to_thread(line.recv)
        attack = asyncio.ensure_future(ATTACKS[name].run(replace(target, last=last)))
        line.send("")
        await asyncio.to_thread(line.recv)
        attack.cancel()
        words = ""
        with suppress(asyncio.CancelledError):
            try:
                await attack
            except Exception as error:
                words = repr(error)
        line.send(words)
