"""Server 1 put together: one app for devices, one for the peer on a listener of its own."""

from dataclasses import dataclass

from fastapi import FastAPI

from secemb_party.http.app import new_app
from secemb_party.http.devices import device_routes
from secemb_party.http.operator import operator_routes
from secemb_party.http.reads import read_routes
from secemb_party.http.relays import relay_routes
from secemb_party.http.tables import table_routes
from secemb_party.http.uploads import install_uploads
from secemb_party.party import Party
from secemb_party.ui import Side, Surroundings, ui_routes
from secemb_server1.relay_desk import RelayDesk
from secemb_server1.relay_keys import RelayKeys
from secemb_server1.relay_routes import peer_relay_routes
from secemb_server1.responder import Responder
from secemb_server1.routes import bearer_check, peer_routes

DESCRIPTION = "The helper of a pair: devices send keys and updates here and to server 0."
PEER_DESCRIPTION = "What server 0 asks server 1, over mutual TLS."


@dataclass(frozen=True, slots=True)
class Server1:
    """The app that devices talk to, and the one that server 0 talks to."""

    devices: FastAPI
    peer: FastAPI


def create_server1(
    party: Party,
    peer_token_hash: bytes,
    *,
    body_seconds: float = 30.0,
    operator_hash: bytes | None = None,
    surroundings: Surroundings | None = None,
    relay_keys: RelayKeys | None = None,
) -> Server1:
    """Return server 1 made of these parts; with keys for it, it takes what server 0 passes on."""
    desk = RelayDesk(party, relay_keys) if relay_keys is not None and party.task.relays else None
    devices = new_app("SecEmb server 1", DESCRIPTION, metrics=party.metrics, ready=party.readiness)
    devices.include_router(device_routes(party))
    devices.include_router(table_routes(party))
    devices.include_router(read_routes(party, body_seconds=body_seconds))
    devices.include_router(relay_routes(party, desk.announce if desk is not None else None))
    install_uploads(devices, party, body_seconds=body_seconds, completed=lambda: None)
    if operator_hash is not None:
        devices.include_router(operator_routes(party, operator_hash))
        devices.include_router(ui_routes(party, operator_hash, Side(), surroundings or Surroundings()))
    peer = new_app("SecEmb server 1, peer channel", PEER_DESCRIPTION, metrics=party.metrics)
    bearer = bearer_check(party, peer_token_hash)
    peer.include_router(peer_routes(party, Responder(party), bearer))
    if desk is not None:
        peer.include_router(peer_relay_routes(desk, bearer))
    return Server1(devices, peer)
