"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ConfigFile = Annotated[Path, typer.Option("--config", help="The settings file, or the directory that has it.")]
