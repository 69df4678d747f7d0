"""Shared by several commands: options, exit codes, and error handling."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from secemb_shared.errors import SecEmbError
from secemb_tools import output
from secemb_tools.transport import Transport

REFUSED = 1
INTERRUPTED = 130  # the exit code of shells after Ctrl-C

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ConfigFile = Annotated[Path, typer.Option("--config", help="The settings file, or the directory that contains it.")]
AuthorityFile = Annotated[
    Path | None, typer.Option("--ca", help="PEM file with the CA certificates to trust; default: the system's.")
]
TransportOption = Annotated[
    Transport,
    typer.Option(
        "--transport",
        help="relayed: devices call server 0 only, with about half the traffic; direct: they call both servers.",
    ),
]

# The words of a task's training.
Loss = Literal["squared", "bpr", "softmax", "next"]
Optimiser = Literal["adam", "lazy-adam", "momentum", "sgd"]
Schedule = Literal["constant", "cosine"]

TaskName = Annotated[
    str | None,
    typer.Option("--task", help="A task, by its name or the first digits of its id; default: the only one."),
]
RunsFolder = Annotated[Path, typer.Option("--runs", help="The directory of saved runs.")]
RUNS = Path("build/runs")
# How a rating set is read.
ColumnNames = Annotated[
    str | None,
    typer.Option(
        "--columns", help="Columns by name or number: user=…,item=…,rating=…,time=… (rating and time optional)."
    ),
]
CatalogueFile = Annotated[Path | None, typer.Option("--catalogue", help="A file with the ids and titles of items.")]
JunkShare = Annotated[
    float,
    typer.Option("--junk", min=0, max=1, help="Largest share of invalid lines to skip; a file with more is rejected."),
]


@contextmanager
def refusals() -> Iterator[None]:
    """Print an expected error as one message and end with exit code 1."""
    try:
        yield
    except (SecEmbError, OSError) as error:
        words = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        output.refuse(words)
        raise typer.Exit(REFUSED) from None
