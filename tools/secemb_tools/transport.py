"""The transports between devices and the two servers."""

from enum import StrEnum


class Transport(StrEnum):
    """Relayed through server 0, with a box for server 1, or directly to each server."""

    RELAYED = "relayed"
    DIRECT = "direct"
