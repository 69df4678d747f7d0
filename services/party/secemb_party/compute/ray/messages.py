"""What a server and its process at Ray send each other: calls and replies, with arrays beside the pickled rest."""

import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True, slots=True)
class Options:
    """How to reach Ray, and what to start there."""

    address: str  # of the cluster, or "auto": the one on this machine
    workers: int
    memory_bytes: int | None  # that each worker reserves; None: no reservation
    connect_seconds: float = 30.0  # to connect to the cluster; then it is tried again
    start_seconds: float = 60.0  # for Ray to find room for the workers and to start them
    call_seconds: float = 300.0  # for a call, however long its queue


@dataclass(frozen=True, slots=True)
class Shared:
    """Stands for an array that was put into Ray's object store."""

    number: int


def send(connection: Connection, message: Any) -> None:
    """Send a message; its arrays are not copied into the pickle."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    connection.send_bytes(len(buffers).to_bytes(4, "little"))
    connection.send_bytes(head)
    for part in buffers:
        connection.send_bytes(part.raw())


def receive(connection: Connection) -> Any:
    """Return the next message; raise EOFError if the other side is gone."""
    count = int.from_bytes(connection.recv_bytes(), "little")
    head = connection.recv_bytes()
    # Both ends are the server's own processes, connected by a pipe that nobody else can open.
    return pickle.loads(head, buffers=[connection.recv_bytes() for _ in range(count)])  # noqa: S301
