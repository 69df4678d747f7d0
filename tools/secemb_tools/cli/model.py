"""`secemb model`: the versions of the model that a server holds."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, AuthorityFile, ConfigFile, TaskName, refusals

app = typer.Typer(help="Manage the model versions that a server stores.", no_args_is_help=True)


@app.command("list")
def list_(config: ConfigFile = Path("secemb.toml"), task: TaskName = None, json: AsJson = False) -> None:
    """List versions and digests; they must be the same on both servers."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_of_task

    with refusals():
        rows = asyncio.run(models.list_versions(settings_of_task(config, task)))
        output.show_rows(["version", "digest", "published", "file"], rows, as_json=json)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    version: Annotated[int | None, typer.Option(min=0, help="Default: the latest published version.")] = None,
    split_bias: Annotated[
        bool, typer.Option("--split-bias", help="Write the last column as a separate tensor, `bias`.")
    ] = False,
    config: ConfigFile = Path("secemb.toml"),
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Export a published version to a file for serving."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_of_task

    with refusals():
        facts = asyncio.run(models.export(settings_of_task(config, task), version, file, split_bias=split_bias))
        output.show_facts(facts, as_json=json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A safetensors file with `rows` and, if the task has one, `dense`.")],
    config: ConfigFile = Path("secemb.toml"),
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Import a file as version 0, before the first start. Do the same on the other server and compare the digests."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_of_task

    with refusals():
        output.show_facts(asyncio.run(models.import_first(settings_of_task(config, task), file)), as_json=json)


@app.command()
def show(
    version: Annotated[int | None, typer.Argument(min=0, help="Default: the latest published version.")] = None,
    config: ConfigFile = Path("secemb.toml"),
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Show the size of a version and the norms of its vectors, but not the vectors themselves."""
    from secemb_tools.operate import models
    from secemb_tools.operate.settings import settings_of_task

    with refusals():
        output.show_facts(asyncio.run(models.describe(settings_of_task(config, task), version)), as_json=json)


@app.command()
def fetch(
    source: Annotated[
        str | None,
        typer.Option("--from", help="Address at which devices reach the other server; required on server 1."),
    ] = None,
    ca: AuthorityFile = None,
    config: ConfigFile = Path("secemb.toml"),
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Fetch the published version from the other server if its file is missing or wrong here; the digest is checked."""
    from secemb_tools.operate.recovery import fetch_models
    from secemb_tools.operate.settings import settings_of_task

    with refusals():
        with output.busy("reading models"):
            rows = asyncio.run(fetch_models(settings_of_task(config, task), source, ca))
        output.show_rows(["version", "digest", "fetched"], rows, as_json=json)


@app.command("reset-optimiser")
def reset(config: ConfigFile = Path("secemb.toml"), task: TaskName = None, json: AsJson = False) -> None:
    """Reset the optimiser at the published version, if its state is missing or belongs to another version."""
    from secemb_tools.operate.recovery import reset_optimiser
    from secemb_tools.operate.settings import settings_of_task

    with refusals():
        output.show_facts(asyncio.run(reset_optimiser(settings_of_task(config, task))), as_json=json)


@app.command()
def rollback(
    version: Annotated[int, typer.Argument(min=0, help="The version to return to.")],
    server: Annotated[str, typer.Option(help="Address of server 0's operator API.")] = "http://127.0.0.1:8442",
    token_file: Annotated[
        Path | None, typer.Option(help="File with an operator token; default: the variable OPERATOR_TOKEN.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="The reason; it is recorded with the name of the token.")] = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the open round to end.")] = 60.0,
    json: AsJson = False,
) -> None:
    """Publish the weights of an older version again on both servers, before the next round."""
    from secemb_tools.cli.control import operator_client
    from secemb_tools.operate.operator_api import published_version, roll_back

    with operator_client(server, token_file, ca, task) as client:
        seen = published_version(client)
        if not yes:
            typer.confirm(
                f"Version {seen} is published. Publish the weights of version {version} again?", abort=True, err=True
            )
        with output.busy("waiting for the open round to end"):
            facts = roll_back(client, version, seen=seen, reason=reason, wait=wait)
        output.show_facts(facts, as_json=json)
