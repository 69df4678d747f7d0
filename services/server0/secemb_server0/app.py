"""Server 0 put together: what devices, operators and the conductor's loop share."""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from secemb_party.http.app import new_app
from secemb_party.http.devices import device_routes
from secemb_party.http.operator import operator_routes
from secemb_party.http.reads import read_routes
from secemb_party.http.tables import table_routes
from secemb_party.http.uploads import install_uploads
from secemb_party.party import Party
from secemb_server0.joining import Door
from secemb_server0.leader import ChooseKind, Leader, always_train
from secemb_server0.peer import Peer
from secemb_server0.routes import join_routes

DESCRIPTION = "The leader of a pair: devices join here, and send keys and updates here and to server 1."


@dataclass(frozen=True, slots=True)
class Server0:
    """The leader and the app that devices talk to."""

    leader: Leader
    app: FastAPI


def create_server0(
    party: Party,
    peer: Peer,
    ticket_key: Ed25519PrivateKey,
    *,
    open_enrolment: bool = False,
    body_seconds: float = 30.0,
    operator_hash: bytes | None = None,
    choose_kind: ChooseKind = always_train,
) -> Server0:
    """Return server 0 made of these parts."""
    leader = Leader(party, peer, choose_kind=choose_kind)
    app = new_app("SecEmb server 0", DESCRIPTION, metrics=party.metrics, ready=leader.readiness)
    # The first is found first, and joining is what is asked most of what the framework serves.
    app.include_router(join_routes(party, Door(party, leader, ticket_key, open_enrolment=open_enrolment)))
    app.include_router(device_routes(party))
    app.include_router(table_routes(party))
    app.include_router(read_routes(party, body_seconds=body_seconds))
    install_uploads(app, party, body_seconds=body_seconds, completed=leader.changed.set)
    if operator_hash is not None:
        app.include_router(operator_routes(party, operator_hash))
    return Server0(leader, app)
