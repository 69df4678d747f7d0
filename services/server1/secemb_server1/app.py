"""Server 1 put together: one app for devices, one for the peer on a listener of its own."""

from dataclasses import dataclass

from fastapi import FastAPI

from secemb_party.http.app import new_app
from secemb_party.http.devices import device_routes
from secemb_party.http.operator import operator_routes
from secemb_party.http.reads import read_routes
from secemb_party.http.tables import table_routes
from secemb_party.http.uploads import install_uploads
from secemb_party.party import Party
from secemb_server1.responder import Responder
from secemb_server1.routes import peer_routes

DESCRIPTION = "The helper of a pair: devices send keys and updates here and to server 0."
PEER_DESCRIPTION = "What server 0 asks server 1, over mutual TLS."


@dataclass(frozen=True, slots=True)
class Server1:
    """The app that devices talk to, and the one that server 0 talks to."""

    devices: FastAPI
    peer: FastAPI


def create_server1(
    party: Party, peer_token_hash: bytes, *, body_seconds: float = 30.0, operator_hash: bytes | None = None
) -> Server1:
    """Return server 1 made of these parts."""
    devices = new_app("SecEmb server 1", DESCRIPTION, metrics=party.metrics, ready=party.readiness)
    devices.include_router(device_routes(party))
    devices.include_router(table_routes(party))
    devices.include_router(read_routes(party, body_seconds=body_seconds))
    install_uploads(devices, party, body_seconds=body_seconds, completed=lambda: None)
    if operator_hash is not None:
        devices.include_router(operator_routes(party, operator_hash))
    peer = new_app("SecEmb server 1, peer channel", PEER_DESCRIPTION, metrics=party.metrics)
    peer.include_router(peer_routes(party, Responder(party), peer_token_hash))
    return Server1(devices, peer)
