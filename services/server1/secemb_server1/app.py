"""Assembles server 1, as apps for devices and for the peer, and as a process."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import Depends, FastAPI, Security

from secemb_party.assembly import Ground, find_operators, server_identity
from secemb_party.errors import SettingsError
from secemb_party.file_watch import FileWatch
from secemb_party.http.app import metrics_app, new_app, operator_app
from secemb_party.http.control_routes import control_routes
from secemb_party.http.dispatch import Dispatch, listeners_for, of_peer
from secemb_party.http.listeners import Listener, serve
from secemb_party.http.operator_routes import operator_routes
from secemb_party.http.request_body import Bodies, Patience
from secemb_party.http.security import PEER
from secemb_party.http.session_routes import session_routes
from secemb_party.http.startup import start_host
from secemb_party.http.succession_routes import agreement_routes, succession_routes
from secemb_party.http.task_control_routes import task_control_routes
from secemb_party.http.task_routes import task_routes
from secemb_party.logs import Outage
from secemb_party.operators import Operators
from secemb_party.replicas import Replica, check_data_dir
from secemb_party.service import Party
from secemb_party.setting_types import SecretFile
from secemb_party.settings import Settings
from secemb_party.tenancy.host import Host, Hosted
from secemb_party.ui import Side, Surroundings, ui_routes
from secemb_party.upkeep import keep_up, watch_certificate_lines, watch_event_loop
from secemb_server1.relay import RelayReceiver
from secemb_server1.relay_keys import KEYS_FILE, RelayKeys
from secemb_server1.responder import Responder
from secemb_server1.routes import bearer_check, ending_routes, peer_routes, relay_routes
from secemb_server1.succession import SuccessionResponder
from secemb_shared.messages import TaskSpec

TITLE = "SecEmb server 1"
DESCRIPTION = "The helper of the pair. Devices send keys and updates here and to server 0."
PEER_DESCRIPTION = "Requests from server 0 to server 1, over mutual TLS."
_ASK = "ask its operator whether it is running and whether `secemb check` passes there"


@dataclass(frozen=True, slots=True)
class Server1:
    """The apps of the listeners; without an operator's token there is no operator app."""

    devices: FastAPI
    peer: FastAPI
    operator: FastAPI | None
    metrics: FastAPI


def create_server1(
    party: Party,
    peer_token_hashes: Callable[[], Collection[bytes]],
    *,
    patience: Patience | None = None,
    operators: Operators | None = None,
    surroundings: Surroundings | None = None,
    relay_keys: RelayKeys | None = None,
) -> Server1:
    """Return server 1 assembled from these parts; with relay keys, it accepts relayed messages."""
    receiver = RelayReceiver(party, relay_keys) if relay_keys is not None and party.task.relays else None
    routers = [
        session_routes(party, Bodies(party.memory, patience or Patience()), completed=lambda: None),
        task_routes(party, receiver.announce if receiver is not None else None),
        succession_routes(party),
    ]
    operator = None
    if operators is not None:
        for_operator = [
            operator_routes(party, operators),
            control_routes(party, operators),
            agreement_routes(party, operators),
            ui_routes(party, operators, Side(), surroundings or Surroundings()),
        ]
        operator = operator_app(TITLE, metrics=party.metrics, routers=for_operator, ready=party.readiness)
    bearer = bearer_check(party, peer_token_hashes)
    # The same copies of the model as for devices, in case server 0 has lost its own: `secemb model fetch`.
    copies = task_routes(party, None, dependencies=[Security(PEER), Depends(bearer)])
    responder = Responder(party)
    ending = ending_routes(SuccessionResponder(party, responder), bearer)
    peer_routers = [peer_routes(party, responder, bearer), ending, copies]
    if receiver is not None:
        peer_routers.insert(0, relay_routes(receiver, party.metrics.refused, bearer))
    return Server1(
        devices=new_app(
            TITLE,
            DESCRIPTION,
            metrics=party.metrics,
            routers=routers,
            tracing=party.tracing,
            allowed_origins=party.allowed_origins,
        ),
        peer=new_app(
            f"{TITLE}, peer channel",
            PEER_DESCRIPTION,
            metrics=party.metrics,
            routers=peer_routers,
            peer_clock=party.clock,
            tracing=party.tracing,
        ),
        operator=operator,
        metrics=metrics_app(TITLE, metrics=party.metrics, ready=party.readiness),
    )


def relay_keys(settings: Settings, task: TaskSpec) -> RelayKeys | None:
    """Return the keys that devices encrypt to, if the task is relayed."""
    if not task.relays:
        return None
    identity = server_identity(settings)
    if identity is None:
        raise SettingsError(
            "relay.identity_file: required for a relayed task; set it to the key that `secemb init` generated"
        )
    if identity.public_key().public_bytes_raw().hex() != task.relay_key:
        raise SettingsError(
            "relay.identity_file: does not match the task's relay_key; create the task with this server's key"
        )
    return RelayKeys(settings.data_dir / KEYS_FILE, identity, task.task_id)


def token_hashes(path: Path) -> FileWatch[list[bytes]]:
    """Return the hashes of server 0's token, one per line; there are two while server 0 changes its token."""
    return FileWatch([path], lambda: [bytes.fromhex(line) for line in SecretFile(path).text().split()])


async def await_calls(party: Party, *, every: float = 30.0, patience: float = 120.0) -> None:
    """Log a warning if server 0, which calls every ten seconds independently of rounds, has not called for too long."""
    silence = Outage("server 0 has stopped calling", "server 0 is calling again")
    started_at = party.clock()
    while True:
        await asyncio.sleep(every)
        if party.clock() - (party.metrics.peer_heard_at or started_at) > patience:
            there = party.control.there
            drained = there is not None and there.what == "drain"
            silence.failed("its operator has drained it" if drained else _ASK)
        else:
            silence.worked()


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    peer = settings.peer
    if peer.host is None or peer.port is None or peer.token_hash_file is None:
        raise SettingsError("peer.host, peer.port and peer.token_hash_file: all required on server 1")
    host = await start_host(settings, partial(_assembly, settings, token_hashes(peer.token_hash_file.path).get))
    if host is None:
        return  # a signal came before it could start
    try:
        if settings.ledger.shared and any(one.party.task.relays for one in host.running.values()):
            await check_data_dir(host.ledger, settings.data_dir, host.clock())
        operators = find_operators(settings)
        tasks = task_control_routes(host, operators) if operators is not None else None
        for_peer = Listener(
            app=Dispatch(host, f"{TITLE}, peer channel", find=of_peer, app_of=lambda one: one.peer),
            host=peer.host,
            port=peer.port,
            cert=peer.cert,
            key=peer.key.path,
            client_ca=peer.peer_ca,
            shared=settings.ledger.shared,
        )
        beside = [
            asyncio.create_task(one) for one in (watch_event_loop(host.metrics), watch_certificate_lines(settings))
        ]
        await serve([*listeners_for(host, settings, TITLE, tasks=tasks), for_peer], host.run)
        for task in beside:
            task.cancel()
    finally:
        await host.close()


def _assembly(
    settings: Settings, peer_token_hashes: Callable[[], Collection[bytes]], ground: Ground, host: Callable[[], Host]
) -> Callable[[Party], Hosted]:
    """Return the function that assembles a task's part of server 1."""
    surroundings = Surroundings.of(settings)

    def assemble(party: Party) -> Hosted:
        keys = relay_keys(settings, party.task)
        if keys is not None:
            ground.metrics.watch_expiry("relay-key", lambda: keys.expiry(party.clock()))
        server = create_server1(
            party,
            peer_token_hashes,
            patience=Patience.of(settings.devices),
            operators=find_operators(settings),
            surroundings=surroundings,
            relay_keys=keys,
        )
        return Hosted(
            party=party,
            devices=server.devices,
            operator=server.operator,
            peer=server.peer,
            ready=party.readiness,
            work=[lambda: await_calls(party), Replica(party).run],
            upkeep=[lambda: keep_up(party, hosted=host().known)],
        )

    return assemble
