"""`secemb model`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals

app = typer.Typer(help="The model of one server as files.", no_args_is_help=True)


@app.command("list")
def list_(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """Print versions and digests; both servers must have the same."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_at

    with refusals():
        rows = asyncio.run(models.list_versions(settings_at(config)))
        output.show_rows(["version", "digest", "published", "file"], rows, as_json=json)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    version: Annotated[int | None, typer.Option(min=0, help="Without it: the latest published.")] = None,
    split_bias: Annotated[bool, typer.Option("--split-bias", help="Write the last column as `bias`.")] = False,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Write a published version for serving."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_at

    with refusals():
        facts = asyncio.run(models.export(settings_at(config), version, file, split_bias=split_bias))
        output.show_facts(facts, as_json=json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A safetensors file with `rows` and any `dense`.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Take a file as version 0, before the first start; do the same on the other server and compare the digests."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(models.import_first(settings_at(config), file)), as_json=json)


@app.command()
def show(
    version: Annotated[int | None, typer.Argument(min=0, help="Without it: the latest published.")] = None,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Say how large a version is and how long its vectors are, without showing one."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(models.describe(settings_at(config), version)), as_json=json)


@app.command()
def rollback(
    version: Annotated[int, typer.Argument(min=0, help="The version whose numbers devices shall read again.")],
    server: Annotated[str, typer.Option(help="The address of server 0.")] = "http://127.0.0.1:8440",
    token_file: Annotated[Path | None, typer.Option(help="A file with its operator token; or OPERATOR_TOKEN.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end of the open round.")] = 60.0,
    json: AsJson = False,
) -> None:
    """Publish the numbers of an older version anew, on both servers, before the next round."""
    from secemb_tools.operate.operator_api import OperatorLine, published_version, roll_back, tokens_for

    with refusals(), OperatorLine(server, tokens_for(1, [token_file] if token_file else [])[0]) as line:
        seen = published_version(line)
        if not yes:
            typer.confirm(
                f"Version {seen} is published. Publish the numbers of version {version} anew?", abort=True, err=True
            )
        with output.busy("waiting for the end of the open round"):
            facts = roll_back(line, version, seen=seen, wait=wait)
        output.show_facts(facts, as_json=json)
