"""New keys for the peer channel, without downtime: at any time each server accepts what the other one presents.

    rotate          the next certificate and, on server 0, the next bearer token are created, but not used
    pair import     the other server accepts the current and the next ones
    switch          the next ones are used
    pair import     the other server accepts no others

Running servers notice the new files by themselves.
"""

import asyncio
from pathlib import Path

import httpx
from typing_extensions import TypedDict

from secemb_party.operators import new_token
from secemb_party.setting_types import SecretFile
from secemb_party.settings import Settings
from secemb_party.storage.files import write_file
from secemb_server0.app import peer_client
from secemb_tools.errors import OperationError
from secemb_tools.operate.certificate import fingerprint, hosts, make_identity, read_certificate
from secemb_tools.operate.directory import PUBLIC, SECRET, ServerDirectory
from secemb_tools.operate.settings import settings_at

_SECONDS = 10.0


class Rotation(TypedDict):
    """The next certificate, or the one in use now."""

    certificate: str  # its fingerprint
    state: str


def rotate(folder: Path, host: str | None) -> Rotation:
    """Create the next keys; an unfinished earlier rotation is restarted."""
    home = ServerDirectory(folder)
    if not home.key.exists():
        raise OperationError(f"no server found in {folder}; run secemb init")
    names = sorted(hosts(read_certificate(home.certificate.read_bytes())))
    if host is None and not names:
        raise OperationError("the certificate names no host; give --host")
    identity = make_identity(host or names[0])
    write_file(home.next_key, identity.key, mode=SECRET)
    write_file(home.next_certificate, identity.certificate, mode=PUBLIC)
    if home.token.exists():
        write_file(home.next_token, new_token().encode() + b"\n", mode=SECRET)
    return {"certificate": fingerprint(identity.certificate), "state": "next"}


def switch(folder: Path, *, now: bool) -> Rotation:
    """Use the next keys from now on; server 0 first asks server 1 whether it accepts them, unless `now`."""
    home = ServerDirectory(folder)
    if not home.next_certificate.exists() or not home.next_key.exists():
        raise OperationError(f"no next keys found in {folder}; run secemb pair rotate")
    if home.token.exists() and not now:
        refusal = asyncio.run(next_refusal(settings_at(folder), home))
        if refusal is not None:
            raise OperationError(
                f"{refusal}; first ask its operator to import this server's new pair file, or add --now if the "
                "current keys must not be used again"
            )
    # The key first: until its certificate follows, a running server keeps the old pair.
    home.next_key.replace(home.key)
    home.next_certificate.replace(home.certificate)
    if home.next_token.exists():
        home.next_token.replace(home.token)
    return {"certificate": fingerprint(home.certificate.read_bytes()), "state": "in use"}


async def next_refusal(settings: Settings, home: ServerDirectory) -> str | None:
    """Return why server 1 does not accept the next keys of server 0; None if it does."""
    peer = settings.peer.model_copy(
        update={
            "cert": home.next_certificate,
            "key": SecretFile(home.next_key),
            "token_file": SecretFile(home.next_token),
        }
    )
    try:
        async with peer_client(settings.model_copy(update={"peer": peer})) as client:
            answer = await client.get("/peer/v1/standing", timeout=_SECONDS)
    except httpx.HTTPError as error:
        return f"server 1 does not accept the next certificate, or cannot be reached ({type(error).__name__})"
    return None if answer.status_code == 200 else "server 1 does not accept the next bearer token token"
