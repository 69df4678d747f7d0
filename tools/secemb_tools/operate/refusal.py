"""How a command ends that cannot do what it was asked for: one message with the fix, exit code 1, no traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from secemb_shared.errors import SecEmbError

REFUSED = 1


class OperationError(SecEmbError):
    """A command cannot do this; the message names the fix."""


@contextmanager
def refusals() -> Iterator[None]:
    """Show an expected error as a message and end with exit code 1."""
    try:
        yield
    except (SecEmbError, OSError) as error:
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]refused[/red] {_escaped(text)}")
        raise typer.Exit(REFUSED) from None


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
