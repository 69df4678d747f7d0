"""`secemb token`: which devices may take part."""

import asyncio
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals
from secemb_tools.errors import OperationError

app = typer.Typer(help="Manage enrolment tokens: which devices may take part (server 0).", no_args_is_help=True)

Days = Annotated[int | None, typer.Option(min=1, max=3650, help="Days until it expires; default: never.")]


@app.command()
def create(
    names: Annotated[
        list[str] | None, typer.Argument(help="A name for each token; a name can be used only once.")
    ] = None,
    names_from: Annotated[
        Path | None, typer.Option(help="A file with one name on each line, or - for stdin; prints CSV.")
    ] = None,
    days: Days = None,
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help="Skip names that are already in use.")] = False,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Create tokens and print them. They cannot be shown again."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    async def run(wanted: list[str], show: Callable[[list[tokens.NewToken]], None]) -> None:
        with output.progress("creating tokens", len(wanted)) as tell:
            made = tokens.create(settings_at(config), wanted, days=days, skip=skip_existing, tell=tell)
            async for batch in made:
                show(batch)
                sys.stdout.flush()  # printed tokens are already stored, whatever happens next

    with refusals():
        if bool(names) == (names_from is not None):
            raise OperationError("give names, or a file of names with --names-from")
        with _lines(names_from) as lines:
            wanted = names or tokens.read_names(lines)
        made: list[tokens.NewToken] = []
        if json or names_from is None:
            asyncio.run(run(wanted, made.extend))
            output.show_rows(["name", "token"], made, as_json=json)
        else:
            asyncio.run(run(wanted, _CsvTable(["name", "token"]).add))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A CSV file with the columns name and sha256, or - for stdin.")],
    days: Days = None,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Add tokens that were generated elsewhere, by their SHA-256 hashes. Adding the same tokens again has no effect."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        with _lines(file) as lines:
            wanted = tokens.read_hashes(lines, days=days)
        with output.progress("adding tokens", len(wanted)) as tell:
            counts = asyncio.run(tokens.import_hashes(settings_at(config), wanted, tell=tell))
        output.show_facts(counts, as_json=json)


@app.command("list")
def list_(
    after: Annotated[str, typer.Option(help="Start after this name.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of tokens to list.")] = 1000,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """List tokens by name, with their hashes, states, session counts and dates."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        found = asyncio.run(tokens.list_some(settings_at(config), after=after, limit=limit))
        columns = ["name", "hash", "state", "joined", "completed", "refused", "rejected", "problem"]
        output.show_rows([*columns, "created", "expires", "revoked"], found, as_json=json)
        if len(found) == limit:
            output.note(f"There may be more: --after {found[-1]['name']!r}")


@app.command()
def replace(
    name: Annotated[str, typer.Argument(help="The device's name.")],
    overlap: Annotated[int, typer.Option(min=0, help="Hours for which the old token stays valid.")] = 168,
    days: Days = None,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Create a device's next token and print it. The device opens the same home with it and remains the same device."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        made = asyncio.run(tokens.replace(settings_at(config), name, days=days, overlap=overlap * 3600.0))
        output.show_facts(made, as_json=json)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The device's name, or at least the first 8 digits of a token's hash.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Revoke all tokens of a device. This cannot be undone."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(tokens.revoke(settings_at(config), name)), as_json=json)


@app.command()
def suspend(
    name: Annotated[str, typer.Argument(help="The device's name, or at least the first 8 digits of a token's hash.")],
    reason: Annotated[str | None, typer.Option(help="The reason, as listed by `secemb operator actions`.")] = None,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Stop a device from joining and reading until `token resume`. A running server applies this at once."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(tokens.suspend(settings_at(config), name, reason)), as_json=json)


@app.command()
def resume(
    name: Annotated[str, typer.Argument(help="The device's name, or at least the first 8 digits of a token's hash.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Let a suspended device take part again."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(tokens.resume(settings_at(config), name)), as_json=json)


class _CsvTable:
    """Rows that are printed as they arrive, with a header line before the first."""

    def __init__(self, columns: list[str]) -> None:
        self._writer, self._begun = csv.DictWriter(sys.stdout, columns, lineterminator="\n"), False

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Print some rows."""
        if not self._begun:
            self._writer.writeheader()
        self._begun = True
        self._writer.writerows(rows)


@contextmanager
def _lines(path: Path | None) -> Iterator[TextIO]:
    """Open a file, or stdin for `-`."""
    if path is None or str(path) == "-":
        yield sys.stdin
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield file
