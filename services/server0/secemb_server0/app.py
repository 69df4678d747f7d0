"""Assembles server 0, as an app and as a process."""

import asyncio
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from secemb_party.assembly import Ground, find_operators, ticket_private_key
from secemb_party.compute import ComputeUnavailableError
from secemb_party.errors import (
    LedgerTakenError,
    LedgerUnavailableError,
    PeerRefusedError,
    PeerUnavailableError,
    SettingsError,
    StorageUnavailableError,
)
from secemb_party.file_watch import FileWatch
from secemb_party.http.app import metrics_app, new_app, operator_app
from secemb_party.http.control_routes import control_routes
from secemb_party.http.dispatch import listeners_for
from secemb_party.http.health import Readiness
from secemb_party.http.listeners import serve
from secemb_party.http.operator_routes import operator_routes
from secemb_party.http.request_body import Bodies, Patience
from secemb_party.http.session_routes import session_routes
from secemb_party.http.startup import start_host
from secemb_party.http.succession_routes import agreement_routes, succession_routes
from secemb_party.http.task_control_routes import task_control_routes
from secemb_party.http.task_routes import task_routes
from secemb_party.logs import Outage, new_request_id, request_lines
from secemb_party.operators import Operators
from secemb_party.replicas import Replica
from secemb_party.service import Check, Party
from secemb_party.setting_types import SecretFile
from secemb_party.settings import Settings
from secemb_party.tenancy.host import Host, Hosted
from secemb_party.ui import Side, Surroundings, ui_routes
from secemb_party.upkeep import keep_up, watch_certificate_lines, watch_event_loop
from secemb_server0.enrolment_routes import enrolment_routes
from secemb_server0.join import AnnouncedKey, TicketIssuer
from secemb_server0.kinds import ChooseKind, always_train
from secemb_server0.leader import Leader
from secemb_server0.pace import JOINS_PER_SECOND, Pace
from secemb_server0.panel import Panel, watch_names
from secemb_server0.peer import HttpPeer, HttpRelayLine, Peer, RelayLine
from secemb_server0.peer_transport import PeerClient, PeerTransport
from secemb_server0.relay import Limits, Relay, RelayedSessions
from secemb_server0.relay_routes import relayed_routes
from secemb_server0.routes import join_routes, rollback_routes
from secemb_server0.seats import READS_PER_MINUTE, SeatRules
from secemb_shared.errors import SecEmbError
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

if TYPE_CHECKING:
    from secemb_party.traces import Tracing

TITLE = "SecEmb server 0"
DESCRIPTION = "The leader of the pair. Devices join here, and send keys and updates here and to server 1."
_SECONDS = 5.0  # time limit for server 1's answer
_DIFFERENT = (
    "the servers have different tasks or models; compare `secemb task show` and `secemb model list` on both sides"
)


@dataclass(frozen=True, slots=True)
class Server0:
    """The leader and the apps of the listeners; without an operator's token there is no operator app."""

    leader: Leader
    devices: FastAPI
    operator: FastAPI | None
    metrics: FastAPI
    ready: Readiness


def create_server0(
    party: Party,
    peer: Peer,
    ticket_key: Ed25519PrivateKey,
    *,
    open_enrolment: bool = False,
    patience: Patience | None = None,
    operators: Operators | None = None,
    choose_kind: ChooseKind = always_train,
    surroundings: Surroundings | None = None,
    relay_line: RelayLine | None = None,
    relay_limits: Limits | None = None,
    joins_per_second: float = JOINS_PER_SECOND,
    panel: Panel | None = None,
    seat_rules: SeatRules | None = None,
    reads_per_minute: int = READS_PER_MINUTE,
) -> Server0:
    """Return server 0 assembled from these parts; with a relay line, it relays if the task allows it."""
    leader = Leader(party, peer, choose_kind=choose_kind, panel=panel, rules=seat_rules)
    issuer = TicketIssuer(
        party,
        leader,
        ticket_key,
        open_enrolment=open_enrolment,
        pace=Pace(joins_per_second),
        reads_per_minute=reads_per_minute,
    )
    line = relay_line if party.task.relays else None
    relay_key = AnnouncedKey(party.task, line, party.clock) if line is not None else None
    bodies = Bodies(party.memory, patience or Patience())
    routers = [
        join_routes(party, issuer, patience=bodies.patience, relay_key=relay_key),
        session_routes(party, bodies, completed=leader.completed),
        task_routes(party, relay_key.get if relay_key is not None else None, issuer.retry_after, issuer.ended_rounds),
        succession_routes(party),
    ]
    if line is not None and relay_key is not None:
        relayed = RelayedSessions(party, Relay(line, metrics=party.metrics, limits=relay_limits))
        # Before those of direct sessions, because FastAPI tries routes in order.
        routers.insert(1, relayed_routes(party, relayed, relay_key, bodies, completed=leader.completed))
    ready = partial(check_readiness, party, peer)
    operator = None
    if operators is not None:
        side = Side(ask_standing=peer.standing, roll_back=leader.roll_back)
        for_operator = [
            operator_routes(party, operators),
            control_routes(party, operators),
            agreement_routes(party, operators),
            rollback_routes(party, leader, operators),
            enrolment_routes(party, operators, patience=bodies.patience),
            ui_routes(party, operators, side, surroundings or Surroundings()),
        ]
        operator = operator_app(TITLE, metrics=party.metrics, routers=for_operator, ready=ready)
    return Server0(
        leader,
        devices=new_app(
            TITLE,
            DESCRIPTION,
            metrics=party.metrics,
            routers=routers,
            tracing=party.tracing,
            allowed_origins=party.allowed_origins,
        ),
        operator=operator,
        metrics=metrics_app(TITLE, metrics=party.metrics, ready=ready),
        ready=ready,
    )


# Errors that a retry may resolve.
_PASSING = (
    PeerUnavailableError,
    LedgerUnavailableError,
    LedgerTakenError,
    StorageUnavailableError,
    ComputeUnavailableError,
)
_LONGEST_PAUSE = 15.0
_REFUSED_PAUSE = 10.0


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    host = await start_host(settings, partial(_assembly, settings))
    if host is None:
        return  # a signal came before it could start
    try:
        operators = find_operators(settings)
        tasks = task_control_routes(host, operators) if operators is not None else None
        beside = [
            asyncio.create_task(one) for one in (watch_event_loop(host.metrics), watch_certificate_lines(settings))
        ]
        await serve(listeners_for(host, settings, TITLE, tasks=tasks), host.run)
        for task in beside:
            task.cancel()
    finally:
        await host.close()


def _assembly(settings: Settings, ground: Ground, host: Callable[[], Host]) -> Callable[[Party], Hosted]:
    """Return the function that assembles a task's part of server 0; its calls to server 1 share connections."""
    client, surroundings = peer_client(settings, ground.tracing), Surroundings.of(settings)
    devices, rounds = settings.devices, settings.rounds

    def assemble(party: Party) -> Hosted:
        task_id = party.task.task_id
        line = HttpRelayLine(client, party.metrics, party.peer_clock, task_id)
        server = create_server0(
            party,
            HttpPeer(client, party.metrics, party.peer_clock, task_id, scratch=party.scratch),
            ticket_private_key(settings),
            open_enrolment=devices.open_enrolment,
            patience=Patience.of(devices),
            operators=find_operators(settings),
            choose_kind=kinds_of(settings),
            surroundings=surroundings,
            relay_line=line,
            joins_per_second=rounds.joins_per_second,
            panel=panel_of(settings),
            seat_rules=SeatRules(
                seconds=rounds.seat_seconds,
                share=rounds.seal_share,
                grace=rounds.grace_seconds,
                stragglers=rounds.straggler_factor,
            ),
            reads_per_minute=devices.reads_per_minute,
        )
        leader = server.leader
        return Hosted(
            party=party,
            devices=server.devices,
            operator=server.operator,
            ready=server.ready,
            work=[
                lambda: conduct(leader),
                lambda: call_peer(leader),
                Replica(party).run,
            ],
            upkeep=[lambda: keep_up(party, hosted=host().known)],
        )

    return assemble


async def call_peer(leader: Leader, *, every: float = 10.0) -> None:
    """Call server 1 regularly, independently of rounds, to notice pauses, clock differences and outages early."""
    failing = Outage("a call to server 1 failed", "calls to server 1 are working again", level="error")
    while True:
        try:
            await leader.exchange()
            failing.worked()
        except (PeerUnavailableError, PeerRefusedError, LedgerUnavailableError):
            pass  # already logged by the peer client, the ledger, or the conductor
        except Exception as error:
            failing.failed(type(error).__name__, error)
        await asyncio.sleep(every)


def kinds_of(settings: Settings) -> ChooseKind:
    """Return a function that maps the number of a round to its kind: survey, evaluation or training."""
    rounds = settings.rounds

    def choose(number: int) -> str:
        if number == 0 and rounds.survey_first:
            return SURVEY
        return EVALUATE if rounds.evaluate_every and (number + 1) % rounds.evaluate_every == 0 else TRAIN

    return choose


def panel_of(settings: Settings) -> Panel | None:
    """Return the trusted panel, or None if there is none."""
    panel = settings.panel
    if panel.file is None:
        return None
    return Panel(watch_names(panel.file), every=panel.every, margin=panel.margin, roll_back=panel.roll_back)


def peer_client(settings: Settings, tracing: "Tracing | None" = None) -> httpx.AsyncClient:
    """Return a client for server 1 with the certificate, pinned authority and bearer token that are in the files."""
    peer = settings.peer
    if peer.url is None or peer.token_file is None:
        raise SettingsError("peer.url and peer.token_file: both required on server 0; `secemb pair` writes them")
    token = peer.token_file.path

    def read_context() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(peer.peer_ca))
        context.load_cert_chain(peer.cert, SecretFile(peer.key.path).path)
        return context

    return PeerClient(
        peer.url,
        transport=PeerTransport(FileWatch([peer.peer_ca, peer.cert, peer.key.path], read_context).get),
        bearer=FileWatch([token], lambda: SecretFile(token).text()).get,
        timeout=httpx.Timeout(peer.answer_seconds, connect=5.0),
        tracing=tracing,
    )


async def conduct(leader: Leader) -> None:
    """Run rounds forever. Failures are logged, counted and retried after a growing pause, so the server stays up."""
    waiting = Outage("waiting", "no longer waiting")
    refused = Outage("refused by server 1", "no longer refused by server 1", level="error")
    broken = Outage("the conductor failed", "the conductor has recovered", level="error")
    pause = 0.0
    while True:
        pause = longer(pause)
        with request_lines(new_request_id()):
            try:
                decision = await leader.step()
                pause = 0.0
                for outage in (waiting, refused, broken):
                    outage.worked()
                await leader.wait(decision)
            except PeerRefusedError as error:
                refused.failed(str(error))
                pause = _REFUSED_PAUSE
            except _PASSING as error:
                waiting.failed(str(error))
            except Exception as error:  # a full disk, too many open files, or a bug of ours: a retry may help
                leader.count_failure()
                # Messages of our own errors name the fix; those of any other may quote a request.
                broken.failed(str(error) if isinstance(error, SecEmbError) else type(error).__name__, error)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))


def longer(pause: float) -> float:
    """Return the pause after another failure."""
    return min(_LONGEST_PAUSE, 2 * pause + 0.2)


async def check_readiness(party: Party, peer: Peer) -> list[Check]:
    """Return the conditions for sending devices here, and what to do if one is not met."""
    checks = await party.readiness()
    if not all(check.ok for check in checks):
        return checks  # without its own ledger and model, there is nothing to compare
    try:
        async with asyncio.timeout(_SECONDS):
            standing = await peer.standing()
    except (PeerUnavailableError, PeerRefusedError, TimeoutError) as error:
        return [*checks, Check("peer", False, str(error) or "server 1 did not answer in time; see its log")]
    same = standing.task == party.task.task_id.hex() and standing.digest in await _digests(party)
    return [*checks, Check("peer", True, ""), Check("digests", same, "" if same else _DIFFERENT)]


async def _digests(party: Party) -> set[str]:
    """Return the digests that server 1 may hold: that of the published version, or of the one being published."""
    published = await party.ledger.published_version(party.task.task_id)
    if published is None:
        return set()
    recent = range(published.version, published.version + 2)
    return {one.digest.hex() for one in await party.ledger.versions(party.task.task_id) if one.version in recent}
