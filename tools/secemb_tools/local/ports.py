"""Ports of loopback for services that are about to start."""

import socket
from collections.abc import Sequence
from itertools import islice
from random import SystemRandom

HERE = "127.0.0.1"
# Below those that systems give to clients: until the service listens, nobody else is given its port by chance.
_FOR_SERVICES = range(15_000, 32_000)


def free_ports(count: int, among: Sequence[int] = _FOR_SERVICES) -> list[int]:
    """Return different ports that nobody listens on, in random order."""
    return list(islice(filter(_is_free, SystemRandom().sample(among, len(among))), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as services do: remains of old connections do no harm
        try:
            probe.bind((HERE, port))
        except OSError:
            return False
    return True
