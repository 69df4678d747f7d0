"""`secemb pair` and `secemb relay-key`: the keys that servers and devices use."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals

pair_app = typer.Typer(help="Exchange public keys with the other operator.", no_args_is_help=True)
relay_key_app = typer.Typer(
    help="Manage the keys that devices encrypt to in the relayed transport (server 1).", no_args_is_help=True
)

Directory = Annotated[Path, typer.Argument(help="This server's directory.")]


@pair_app.command("export")
def export_pair(dir: Directory) -> None:
    """Print this server's pair file, and on stderr the fingerprints to read to the other operator."""
    from secemb_tools.operate.pairing import dump, export_pair, fingerprints

    with refusals():
        pair = export_pair(dir)
        typer.echo(dump(pair), nl=False)
        for name, value in fingerprints(pair).items():
            output.note(f"{name.replace('_', ' '):12} {value}")


@pair_app.command("import")
def import_pair(
    dir: Directory,
    file: Annotated[Path, typer.Argument(help="The other server's pair file.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the keys of an earlier pair file.")] = False,
    json: AsJson = False,
) -> None:
    """Import the other server's pair file; then compare the printed fingerprints with its operator."""
    from secemb_tools.operate.pairing import fingerprints, import_pair

    with refusals():
        output.show_facts(fingerprints(import_pair(dir, file, replace=replace)), as_json=json)
        output.note(
            "Compare these with the other operator by phone: a pair file altered in transit would let an attacker in."
        )


@pair_app.command("rotate")
def rotate_keys(
    dir: Directory,
    host: Annotated[
        str | None, typer.Option(help="Host name or address of this server; default: the one in its certificate.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create the next peer certificate and, on server 0, the next bearer token; then exchange pair files."""
    from secemb_tools.operate.rotation import rotate

    with refusals():
        output.show_facts(rotate(dir, host), as_json=json)
        output.note(
            "They are not in use yet. Export the pair file, have the other operator import it, then run secemb "
            "pair switch."
        )


@pair_app.command("switch")
def switch_keys(
    dir: Directory,
    now: Annotated[bool, typer.Option("--now", help="Skip the check that server 1 accepts them.")] = False,
    json: AsJson = False,
) -> None:
    """Switch to the next certificate and bearer token; a running server follows within seconds."""
    from secemb_tools.operate.rotation import switch

    with refusals():
        output.show_facts(switch(dir, now=now), as_json=json)
        output.note("Export the pair file and have the other operator import it, so that the old keys stop working.")


@relay_key_app.command("rotate")
def rotate_relay_key(
    config: ConfigFile = Path("secemb.toml"),
    lead: Annotated[int, typer.Option(min=0, help="Seconds until the new key is announced.")] = 0,
    overlap: Annotated[
        int, typer.Option(min=0, help="Seconds for which the old key is still accepted after that.")
    ] = 3600,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days for which the new key is valid.")] = 90,
    json: AsJson = False,
) -> None:
    """Create the next key; a running server picks it up automatically. With --overlap 0 the old key ends at once."""
    from secemb_tools.operate import relay_keys
    from secemb_tools.operate.settings import settings_at

    with refusals():
        made = relay_keys.rotate(settings_at(config), lead=lead, overlap=overlap, days=days)
        output.show_facts(made, as_json=json)


@relay_key_app.command("list")
def list_relay_keys(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """List the id, state and dates of every key. No secrets are shown."""
    from secemb_tools.operate import relay_keys
    from secemb_tools.operate.settings import settings_at

    with refusals():
        found = relay_keys.list_all(settings_at(config))
        output.show_rows(["key_id", "state", "not_before", "not_after"], found, as_json=json)
