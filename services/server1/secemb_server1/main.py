"""Server 1 as a process."""

import asyncio

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from secemb_party.assembly import close_party, open_party, operator_hash
from secemb_party.errors import SettingsError
from secemb_party.serving import Listener, serve
from secemb_party.settings import Settings
from secemb_party.telemetry import watch_event_loop
from secemb_party.ui import Surroundings
from secemb_server1.app import create_server1
from secemb_server1.relay_keys import KEYS_FILE, RelayKeys
from secemb_shared.messages import TaskSpec


def relay_keys(settings: Settings, task: TaskSpec) -> RelayKeys | None:
    """Return the keys that devices seal to, if the task is relayed."""
    if not task.relays:
        return None
    if settings.relay.identity_file is None:
        raise SettingsError("relay.identity_file: the task is relayed; name the key that `secemb init` has made")
    try:
        identity = load_pem_private_key(settings.relay.identity_file.content, password=None)
    except (ValueError, UnsupportedAlgorithm):
        identity = None
    if not isinstance(identity, Ed25519PrivateKey):
        raise SettingsError("relay.identity_file: not an Ed25519 private key; `secemb init` makes one")
    if identity.public_key().public_bytes_raw().hex() != task.relay_key:
        raise SettingsError("relay.identity_file: the task names another relay_key; create the task from this server's")
    return RelayKeys(settings.data_dir / KEYS_FILE, identity, task.task_id)


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    peer, devices = settings.peer, settings.devices
    if peer.host is None or peer.port is None or peer.token_hash_file is None:
        raise SettingsError("peer.host, peer.port and peer.token_hash_file: server 1 needs all three")
    party = await open_party(settings)
    try:
        keys = relay_keys(settings, party.task)
        if keys is not None:
            keys.erase_expired(party.clock())
        server = create_server1(
            party,
            bytes.fromhex(peer.token_hash_file.text()),
            body_seconds=devices.body_seconds,
            operator_hash=operator_hash(settings),
            surroundings=Surroundings.of(settings),
            relay_keys=keys,
        )
        key = devices.tls_key.path if devices.tls_key is not None else None
        lag = asyncio.create_task(watch_event_loop(party.metrics))
        await serve(
            [
                Listener(app=server.devices, host=devices.host, port=devices.port, cert=devices.tls_cert, key=key),
                Listener(
                    app=server.peer,
                    host=peer.host,
                    port=peer.port,
                    cert=peer.cert,
                    key=peer.key.path,
                    client_ca=peer.peer_ca,
                ),
            ]
        )
        lag.cancel()
    finally:
        await close_party(party)
