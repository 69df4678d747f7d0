"""One round on a device: join, send keys, read rows, train, send the update. Without I/O."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from secemb_sdk.context import Context
from secemb_sdk.errors import (
    ConflictError,
    DamagedError,
    DeclinedError,
    EndedError,
    EnrolmentError,
    ExchangeError,
    ForgottenError,
    GoneError,
    PinError,
    RefusedError,
    RoundFullError,
    UnavailableError,
)
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.receipts import Receipt, Traffic, make_receipt
from secemb_sdk.home.records import Intent, Keyed, Ticket, Written
from secemb_sdk.recommend.catalogue import fetch_vocabulary
from secemb_sdk.recommend.sync import read_whole_table
from secemb_sdk.round.dense import read_dense
from secemb_sdk.round.join import ask_how_rounds_ended, check_privacy, find_task, leave_out
from secemb_sdk.round.route import Joined, Route
from secemb_sdk.round.route_direct import DirectRoute
from secemb_sdk.round.route_relayed import RelayedRoute
from secemb_sdk.round.session import SESSION_SEED_BYTES, DeviceSession, Messages, SeededBytes
from secemb_sdk.round.upload import kept_private, make_upload
from secemb_sdk.steps import Steps, work
from secemb_sdk.succession import following
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.spec import EVALUATE, SURVEY


@dataclass(frozen=True, slots=True)
class Contributed:
    """Both servers have acknowledged everything; this is the receipt."""

    receipt: Receipt
    trouble: str | None = None  # the name of the error because of which it uploaded zeros, or less; no server sees it
    settled: tuple[Receipt, ...] = ()  # receipts of earlier rounds whose outcome became known in this call


@dataclass(frozen=True, slots=True)
class NotNow:
    """The round was not finished. Call again after `seconds`; a session continues unless its round is full."""

    seconds: float
    reason: str
    settled: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A session was dropped; the next call begins a new one."""

    reason: str
    seconds: float
    settled: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The task has ended: there is no reason to call again. Recommendations still work."""

    reason: str
    settled: tuple[Receipt, ...] = ()


Outcome: TypeAlias = Contributed | NotNow | Dropped | Ended


_UNTIL_NEXT = 5.0  # seconds to wait if no server gave a time

ROUTES = (DirectRoute, RelayedRoute)
Opened = tuple[DeviceSession, SeededBytes]  # a session and its source of random bytes


def contribute(context: Context) -> Steps[Outcome]:
    """Take part in one round; return its outcome, and the outcomes of earlier rounds."""
    exchange = Exchange(context, most_bytes=context.policy.bytes)
    outcome = yield from _outcome(context, exchange)
    return replace(outcome, settled=(yield from exchange.settle()))


def _outcome(context: Context, exchange: Exchange) -> Steps[Outcome]:
    try:
        return (yield from following(context, lambda: exchange.noting(_contribute(context, exchange))))
    except ForgottenError as error:
        return Dropped(str(error), _UNTIL_NEXT)
    except EndedError as error:
        if not isinstance(error, DeclinedError):
            yield from ask_how_rounds_ended(exchange)  # the refusal does not include it
        return Ended(str(error))
    except ExchangeError as error:
        return NotNow(error.seconds or _UNTIL_NEXT, str(error))


def _contribute(context: Context, exchange: Exchange) -> Steps[Outcome]:
    task = yield from find_task(exchange)
    context.check_bytes(task)
    yield from work(lambda: kept_private(context, context.model_for(task)))  # raises unless the model fits both
    yield from fetch_vocabulary(context, task)
    return (yield from Participation(exchange, task).run())


class Participation:
    """A device in one round, possibly continued after an interruption."""

    def __init__(self, exchange: Exchange, task: TaskSpec) -> None:
        self._context, self._exchange, self._task = exchange.context, exchange, task
        self._vault, self._forgotten = self._context.vault, self._context.vault.forgotten
        self._stage: Keyed | Written | None = None  # as it is stored
        self._routes: Mapping[str, Route] = {route.transport: route(exchange, task) for route in ROUTES}

    def run(self) -> Steps[Outcome]:
        """Continue the session in the home; if there is none, or its round has ended, start one."""
        try:
            stage = yield from work(self._vault.session)
        except DamagedError:
            yield from work(self._vault.drop_session)
            return Dropped("the session in the home is corrupted", _UNTIL_NEXT)
        elsewhere = yield from work(self._vault.session_is_elsewhere)
        if isinstance(stage, Keyed | Written):
            try:
                return (yield from self._guarded(self._resume(stage, elsewhere=elsewhere), resumed=True))
            except GoneError:
                self._exchange.traffic = Traffic()
        seed = stage.seed if isinstance(stage, Intent) and not elsewhere else (yield from self._draw_seed())
        return (yield from self._guarded(self._begin(seed), resumed=False))

    def _guarded(self, steps: Steps[Outcome], *, resumed: bool) -> Steps[Outcome]:
        """Run steps; drop a session that cannot be finished, and leave others unchanged."""
        try:
            return (yield from steps)
        except (UnavailableError, PinError, EnrolmentError):
            if self._stage is not None and self._stage.ticket.traffic != self._exchange.traffic:
                yield from self._keep(replace(self._stage, ticket=self._spent(self._stage.ticket)))
            raise
        except (GoneError, ConflictError, RefusedError) as error:
            if self._stage is None:
                raise
            noticed = Misconduct.SESSION if isinstance(error, ConflictError) else error.noticed
            if noticed is not None:
                yield from self._exchange.note(noticed)
            yield from self._end(self._stage, complete=False)
            if resumed and isinstance(error, GoneError):
                raise
            if isinstance(error, RoundFullError):
                return NotNow(error.seconds or _UNTIL_NEXT, str(error))
            return Dropped(str(error), _UNTIL_NEXT)

    def _begin(self, seed: bytes) -> Steps[Outcome]:
        route = self._routes[self._context.transport_for(self._task)]
        try:
            joined = yield from route.join(seed)
        except ConflictError:  # this session has a place in an earlier round
            yield from leave_out(self._exchange)  # of this round, if participation is random
            seed = yield from self._draw_seed()
            joined = yield from route.join(seed)
        yield from check_privacy(self._exchange, joined.round, seed)  # server 0 may have opened the next one by now
        joined_at = self._context.clock()
        keyed, opened = yield from work(lambda: self._open(route, joined, seed))
        yield from self._keep(keyed)
        self._exchange.begun = True
        yield from self._exchange.wait_until(joined_at + self._context.policy.keys_seconds)
        return (yield from self._send_keys(route, keyed, opened))

    def _resume(self, stage: Keyed | Written, *, elsewhere: bool) -> Steps[Outcome]:
        self._stage, self._exchange.begun = stage, True
        self._exchange.traffic.add(stage.ticket.traffic)
        if elsewhere:
            raise RefusedError("the home was copied or restored during a session")
        left = yield from work(lambda: self._vault.receipt_at(stage.ticket.receipts))
        if left is not None:  # killed while ending the session; the rest needs no server
            yield from self._finish(stage, left)
            if left.complete and isinstance(stage, Written):
                return Contributed(left, stage.trouble)
            raise GoneError("the session was abandoned earlier")
        route = self._routes[stage.ticket.transport]
        if isinstance(stage, Written):
            return (yield from self._send_update(route, stage))
        opened = yield from work(lambda: _build(self._round(stage.ticket), stage))
        if opened is None:
            raise RefusedError("the app was updated during a session")
        return (yield from self._send_keys(route, stage, opened))

    def _draw_seed(self) -> Steps[bytes]:
        """Draw the seed of a new session, and store it before sending anything to a server."""
        seed = self._context.random_bytes(SESSION_SEED_BYTES)
        yield from work(lambda: self._vault.keep_session(Intent(seed), forgotten=self._forgotten))
        return seed

    def _open(self, route: Route, joined: Joined, seed: bytes) -> tuple[Keyed, Opened]:
        """Choose the items, place them and make the keys."""
        context, drawn = self._context, SeededBytes(seed)
        selection = context.select(joined.round, context.random_bytes)
        session = DeviceSession(joined.round, selection.items, random_bytes=drawn)
        ticket = Ticket(
            round=joined.round.encode(),
            ticket=joined.ticket,
            truncated=session.truncated + selection.left_out,
            traffic=self._exchange.traffic.copy(),
            receipts=len(self._vault.receipts()),
            transport=route.transport,
            route_state=joined.route_state,
        )
        digest = _digest(session.keys)
        return Keyed(ticket=ticket, seed=seed, selection=selection, keys_digest=digest), (session, drawn)

    def _send_keys(self, route: Route, keyed: Keyed, opened: Opened) -> Steps[Outcome]:
        context, (session, drawn) = self._context, opened
        answers = yield from route.send_keys(session, keyed.ticket)
        dense = None
        if session.round.kind != SURVEY:
            version = session.round.model_version
            dense = yield from read_dense(self._exchange, self._task, version, confirm=answers.confirm_dense)
        table = None
        if session.round.kind == EVALUATE and self._task.ranks_whole_table and dense is not None:
            table = yield from read_whole_table(self._exchange, session.round, dense)
        read_at = context.clock()  # from here, so that a slow server cannot consume the pace
        upload = yield from work(
            lambda: make_upload(context, session, keyed.selection, answers.read_rows, dense, drawn, table=table)
        )
        written = Written(
            ticket=self._spent(keyed.ticket),
            session_id=session.session_id,
            update=upload.messages,
            marks=session.marks,
            private=upload.private,
            trouble=upload.trouble,
        )
        yield from self._keep(written)
        yield from self._exchange.wait_until(read_at + context.policy.pace_seconds)
        return (yield from self._send_update(route, written))

    def _send_update(self, route: Route, written: Written) -> Steps[Outcome]:
        yield from route.send_update(self._round(written.ticket), written)
        receipt = yield from self._end(written, complete=True)
        return Contributed(receipt, written.trouble)

    def _keep(self, stage: Keyed | Written) -> Steps[None]:
        """Store a stage before sending any of its messages."""
        number = self._round(stage.ticket).number
        yield from work(lambda: self._vault.keep_session(stage, round_=number, forgotten=self._forgotten))
        self._stage = stage

    def _end(self, stage: Keyed | Written, *, complete: bool) -> Steps[Receipt]:
        """End the session and store its receipt; only a complete one changes the private part."""
        receipt = make_receipt(
            self._round(stage.ticket),
            self._exchange.traffic,
            truncated=stage.ticket.truncated,
            complete=complete,
            wall_time=self._context.wall_clock(),
            transport=stage.ticket.transport,
        )
        yield from self._finish(stage, receipt)
        return receipt

    def _finish(self, stage: Keyed | Written, receipt: Receipt) -> Steps[None]:
        private = stage.private if receipt.complete and isinstance(stage, Written) else None
        yield from work(
            lambda: self._vault.end_session(
                receipt, receipts=stage.ticket.receipts, private=private, forgotten=self._forgotten
            )
        )
        self._stage = None

    def _round(self, ticket: Ticket) -> RoundSpec:
        return RoundSpec.decode(ticket.round, self._task)

    def _spent(self, ticket: Ticket) -> Ticket:
        return replace(ticket, traffic=self._exchange.traffic.copy())


def _build(round_: RoundSpec, keyed: Keyed) -> Opened | None:
    """Rebuild a session, or return None if this version of the app makes different keys."""
    drawn = SeededBytes(keyed.seed)
    session = DeviceSession(round_, keyed.selection.items, random_bytes=drawn)
    return (session, drawn) if _digest(session.keys) == keyed.keys_digest else None


def _digest(messages: Messages) -> bytes:
    return hashlib.sha256(messages[0] + messages[1]).digest()
