"""Server 0 put together: what devices, operators and the conductor's loop share."""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from secemb_party.http.app import new_app
from secemb_party.http.devices import device_routes
from secemb_party.http.operator import operator_routes
from secemb_party.http.reads import read_routes
from secemb_party.http.relays import relay_routes
from secemb_party.http.tables import table_routes
from secemb_party.http.uploads import UploadRoute, install_uploads
from secemb_party.party import Party
from secemb_party.ui import Side, Surroundings, ui_routes
from secemb_server0.announced_key import AnnouncedKey
from secemb_server0.joining import Door
from secemb_server0.leader import ChooseKind, Leader, always_train
from secemb_server0.operator_routes import rollback_routes
from secemb_server0.peer import Peer
from secemb_server0.relay import Limits, Relay
from secemb_server0.relay_line import RelayLine
from secemb_server0.relayed_uploads import RelayedUploads, relayed_routes
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
    surroundings: Surroundings | None = None,
    relay_line: RelayLine | None = None,
    relay_limits: Limits | None = None,
) -> Server0:
    """Return server 0 made of these parts; with a line for it, it relays where the task allows that."""
    leader = Leader(party, peer, choose_kind=choose_kind)
    app = new_app("SecEmb server 0", DESCRIPTION, metrics=party.metrics, ready=leader.readiness)
    door = Door(party, leader, ticket_key, open_enrolment=open_enrolment)
    line = relay_line if party.task.relays else None
    relay_key = AnnouncedKey(party.task, line, party.clock) if line is not None else None
    app.include_router(device_routes(party))
    app.include_router(table_routes(party))
    app.include_router(read_routes(party, body_seconds=body_seconds))
    app.include_router(relay_routes(party, relay_key.get if relay_key is not None else None))
    more: tuple[UploadRoute, ...] = ()
    if line is not None and relay_key is not None:
        relay = Relay(line, metrics=party.metrics, limits=relay_limits)
        more = relayed_routes(RelayedUploads(party, relay, relay_key, completed=leader.completed))
    install_uploads(app, party, body_seconds=body_seconds, completed=leader.completed, more=more)
    app.by_hand.extend(join_routes(party, door, body_seconds=body_seconds, relay_key=relay_key))
    if operator_hash is not None:
        app.include_router(operator_routes(party, operator_hash))
        app.include_router(rollback_routes(party, leader, operator_hash))
        side = Side(ask_standing=peer.standing, roll_back=leader.roll_back)
        app.include_router(ui_routes(party, operator_hash, side, surroundings or Surroundings()))
    return Server0(leader, app)
