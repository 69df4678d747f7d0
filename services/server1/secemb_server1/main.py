"""Server 1 as a process."""

import asyncio

from secemb_party.assembly import close_party, open_party, operator_hash
from secemb_party.errors import SettingsError
from secemb_party.serving import Listener, serve
from secemb_party.settings import Settings
from secemb_party.telemetry import watch_event_loop
from secemb_server1.app import create_server1


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    peer, devices = settings.peer, settings.devices
    if peer.host is None or peer.port is None or peer.token_hash_file is None:
        raise SettingsError("peer.host, peer.port and peer.token_hash_file: server 1 needs all three")
    party = await open_party(settings)
    try:
        server = create_server1(
            party,
            bytes.fromhex(peer.token_hash_file.text()),
            body_seconds=devices.body_seconds,
            operator_hash=operator_hash(settings),
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
