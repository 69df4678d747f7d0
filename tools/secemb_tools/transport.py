"""How the devices of a demonstration or a measurement talk to the two servers."""

from enum import StrEnum
from typing import Annotated

import typer


class Transport(StrEnum):
    """Everything sealed through server 0, or each server's part to itself."""

    RELAYED = "relayed"
    DIRECT = "direct"


TransportOption = Annotated[
    Transport,
    typer.Option("--transport", help="relayed: devices call server 0 alone, half the bytes; direct: both servers."),
]
