"""`secemb model`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools.operate import answer
from secemb_tools.operate.options import AsJson, ConfigFile
from secemb_tools.operate.refusal import refusals

app = typer.Typer(help="The model of one server as files.", no_args_is_help=True)


@app.command("list")
def list_(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """Print versions and digests; both servers must have the same."""
    from secemb_tools.operate import weights
    from secemb_tools.operate.running import settings_at

    with refusals():
        rows = asyncio.run(weights.list_versions(settings_at(config)))
        answer.show_rows(["version", "digest", "published", "file"], rows, as_json=json)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    version: Annotated[int | None, typer.Option(min=0, help="Without it: the latest published.")] = None,
    split_bias: Annotated[bool, typer.Option("--split-bias", help="Write the last column as `bias`.")] = False,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Write a published version for serving."""
    from secemb_tools.operate import weights
    from secemb_tools.operate.running import settings_at

    with refusals():
        facts = asyncio.run(weights.export(settings_at(config), version, file, split_bias=split_bias))
        answer.show_facts(facts, as_json=json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A safetensors file with `rows` and any `dense`.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Take a file as version 0, before the first start; do the same on the other server and compare the digests."""
    from secemb_tools.operate import weights
    from secemb_tools.operate.running import settings_at

    with refusals():
        answer.show_facts(asyncio.run(weights.import_first(settings_at(config), file)), as_json=json)
