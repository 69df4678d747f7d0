"""How devices reach the two servers."""

from enum import StrEnum


class Transport(StrEnum):
    """Through server 0 with a box for server 1 inside, or each server's part to itself."""

    RELAYED = "relayed"
    DIRECT = "direct"
