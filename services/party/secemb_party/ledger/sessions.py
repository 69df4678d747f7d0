"""Sessions: who takes part in a round, and the digests of the uploads.

Their number would grow without limit, so rows of rounds that ended long ago, and of tasks that are no longer served,
are removed. Rounds are kept: the privacy accountant counts their number, kind, digests and sealed list, and the other
server compares them.

A session takes a seat with its keys. Until then it does not block others: more sessions may join than there are seats,
and those whose keys arrive after all seats are taken are refused. A session that joined before the time `since` and has
sent no keys has lapsed: no round waits for it, its device may begin another session, and it is removed if too many are
waiting.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, update

from secemb_party.errors import NotRecordedError
from secemb_party.ledger.database import insert_new
from secemb_party.ledger.devices import note_join, note_late
from secemb_party.ledger.records import (
    Admission,
    Counts,
    RoundState,
    SessionSummary,
    Stored,
    TakenSeats,
    Turnout,
    Upload,
    Window,
)
from secemb_party.ledger.rounds import lock_round, postpone
from secemb_party.ledger.schema import answers, bodies, rounds
from secemb_party.ledger.schema import sessions as sessions_table
from secemb_party.storage.interfaces import KEYS, UPDATE, BodyNames, Step

_IN_ROUND = sessions_table.c.round_id == bindparam("round")
_LOOK = (
    select(
        rounds.c.state,
        rounds.c.join_until,
        sessions_table.c.round_id,
        sessions_table.c.device,
        sessions_table.c.admitted_at,
        sessions_table.c.keys_digest,
        sessions_table.c.update_digest,
    )
    .select_from(rounds.outerjoin(sessions_table, sessions_table.c.session_id == bindparam("session")))
    .where(rounds.c.round_id == bindparam("round"))
)
_WITHOUT_KEYS = sessions_table.c.keys_digest.is_(None)
_EXPECTED = and_(_WITHOUT_KEYS, sessions_table.c.admitted_at > bindparam("since"))
_LAPSED = and_(_WITHOUT_KEYS, sessions_table.c.admitted_at <= bindparam("since"))
_OF_DEVICE = sessions_table.c.device == bindparam("device_")
_TALLY = select(
    func.count(sessions_table.c.keys_digest),
    func.count().filter(_WITHOUT_KEYS),
    func.count().filter(_OF_DEVICE, or_(sessions_table.c.keys_digest.is_not(None), _EXPECTED)),
).where(_IN_ROUND)
_SEATS = select(
    func.count(sessions_table.c.keys_digest),
    func.count().filter(_EXPECTED),
    func.min(sessions_table.c.admitted_at).filter(_EXPECTED),
).where(_IN_ROUND)
_FORGET_LAPSED = delete(sessions_table).where(_IN_ROUND, _LAPSED)
_FORGET_OF_DEVICE = _FORGET_LAPSED.where(_OF_DEVICE)
_TAKEN = select(func.count(sessions_table.c.keys_digest)).where(_IN_ROUND)
_UPDATES = select(func.count(sessions_table.c.update_digest)).where(_IN_ROUND)
_LATE = (
    update(sessions_table).where(sessions_table.c.session_id == bindparam("session")).values(late_at=bindparam("now"))
)
_ROUNDS_OVER = (
    select(rounds.c.round_id)
    .where(
        rounds.c.task_id == bindparam("task"),
        rounds.c.ended_at.is_not(None),
        rounds.c.upload_until <= bindparam("now"),
        rounds.c.upload_until > rounds.c.opened_at,
    )
    .order_by(rounds.c.number.desc())
    .limit(bindparam("limit"))
)
_FINISHED = select(
    func.count(sessions_table.c.keys_digest),
    func.count().filter(
        sessions_table.c.keys_digest.is_not(None),
        or_(sessions_table.c.update_digest.is_not(None), sessions_table.c.late_at.is_not(None)),
    ),
).where(sessions_table.c.round_id.in_(_ROUNDS_OVER))
_COUNT = select(
    func.count(), func.count(sessions_table.c.keys_digest), func.count(sessions_table.c.update_digest)
).where(_IN_ROUND)
_SUMMARIES = (
    select(sessions_table.c.session_id, sessions_table.c.keys_public, sessions_table.c.update_public)
    .where(_IN_ROUND)
    .order_by(sessions_table.c.session_id)
)
_KNOWN = select(sessions_table.c.session_id).where(sessions_table.c.session_id == bindparam("session"))
_KEYS_DIGEST = select(sessions_table.c.keys_digest).where(
    _IN_ROUND, sessions_table.c.session_id == bindparam("session")
)
_BODY_NAMES = select(sessions_table.c.session_id, sessions_table.c.keys_digest, sessions_table.c.update_digest).where(
    _IN_ROUND,
    sessions_table.c.session_id.in_(bindparam("session_ids", expanding=True)),
    sessions_table.c.update_digest.is_not(None),
)
_UPDATED = _KNOWN.where(_IN_ROUND, sessions_table.c.update_digest.is_not(None))
_SET = {
    part: (
        update(sessions_table)
        .where(sessions_table.c.session_id == bindparam("session"))
        .values({name: bindparam(f"new_{name}") for name in (f"{part}_digest", f"{part}_public", f"{part}_at")})
    )
    for part in (KEYS, UPDATE)
}
_ANSWERS = ("prepared", "announced")  # that are kept as long as a round's sessions
FORGET_AT_ONCE = 500  # sessions per transaction: other writers wait for one batch

_OLD = (
    select(sessions_table.c.session_id, sessions_table.c.round_id)
    .select_from(rounds.join(sessions_table, sessions_table.c.round_id == rounds.c.round_id))
    .where(or_(rounds.c.ended_at < bindparam("before"), rounds.c.task_id.in_(bindparam("tasks", expanding=True))))
    .limit(FORGET_AT_ONCE)
)
_FORGET_BODIES = delete(bodies).where(bodies.c.session_id.in_(bindparam("names", expanding=True)))
_FORGET = delete(sessions_table).where(sessions_table.c.session_id.in_(bindparam("names", expanding=True)))
_FORGET_ANSWERS = delete(answers).where(answers.c.key.in_(bindparam("names", expanding=True)))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A round and a session, read while the round is locked."""

    state: RoundState
    join_until: float
    round_id: bytes | None  # of the session; None if there is no such session
    device: bytes | None
    admitted_at: float | None
    keys_digest: bytes | None
    update_digest: bytes | None


def admit(
    tx: Connection,
    round_id: bytes,
    session_id: bytes,
    *,
    device: bytes,
    limit: int,
    waiting: int,
    now: float,
    window: Window,
    since: float = -math.inf,
) -> Admission:
    """Give a device its one session in a round, unless sessions with keys have taken all `limit` seats.

    A round stores at most `waiting` sessions without keys. If no join window is running, because nobody has joined
    before or too few came in time, the session begins `window`.
    """
    seen = _look(tx, round_id, session_id)
    if seen.round_id is not None:
        same = seen.round_id == round_id and seen.device == device
        return Admission.ALREADY if same else Admission.SESSION_TAKEN
    if seen.state is not RoundState.OPEN:
        return Admission.CLOSED
    found = {"round": round_id, "device_": device, "since": since}
    taken, without_keys, of_device = tx.execute(_TALLY, found).one()
    if of_device:
        return Admission.DEVICE_TAKEN
    forgotten = tx.execute(_FORGET_OF_DEVICE if without_keys < waiting else _FORGET_LAPSED, found).rowcount
    if taken >= limit or without_keys - forgotten >= waiting:
        return Admission.FULL
    row = {"session_id": session_id, "round_id": round_id, "device": device, "admitted_at": now}
    # This lock does not exclude the same id in another round.
    if not insert_new(tx, sessions_table, row):
        return Admission.SESSION_TAKEN
    if now >= seen.join_until:
        postpone(tx, round_id, window)
    note_join(tx, device, now)
    return Admission.ADMITTED


def put_keys(
    tx: Connection,
    upload: Upload,
    store_body: Step,
    now: float,
    *,
    require_admission: bool,
    limit: int,
) -> Stored:
    """Record a session's keys, which take one of `limit` seats, and store their body in the same transaction.

    Server 0 admits sessions first. Devices do not join at server 1, so without `require_admission` the keys make the
    session.
    """
    seen = _look(tx, upload.round_id, upload.session_id)
    refusal = _refusal(seen, upload, held=seen.keys_digest)
    if refusal is None and seen.round_id is None and require_admission:
        return Stored.UNKNOWN
    if refusal is None and _is_full(tx, upload.round_id, limit):
        refusal = Stored.FULL
    if refusal is not None:
        _note_late(tx, seen, upload.round_id, refusal, upload.session_id, now)
        return refusal
    if seen.round_id is None:
        if not _add_with_keys(tx, upload, now):
            return Stored.OTHER_ROUND
    else:
        _record(tx, KEYS, upload, now)
    store_body(tx)
    return Stored.STORED


def turn_away(tx: Connection, round_id: bytes, session_id: bytes, now: float, *, limit: int) -> bool:
    """Return whether a joined session's keys are too late because others have taken all seats."""
    seen = _look(tx, round_id, session_id)
    waits = seen.round_id == round_id and seen.keys_digest is None and seen.state is RoundState.OPEN
    if not waits or not _is_full(tx, round_id, limit):
        return False
    _note_late(tx, seen, round_id, Stored.FULL, session_id, now)
    return True


def put_update(tx: Connection, upload: Upload, store_body: Step, now: float, *, limit: int | None = None) -> Stored:
    """Record the update of a session whose keys are here, and store its body in the same transaction.

    A round accepts at most `limit` updates, because more sessions may have joined than a sum may contain.
    """
    seen = _look(tx, upload.round_id, upload.session_id)
    refusal = _refusal(seen, upload, held=seen.update_digest)
    if refusal is None and seen.keys_digest is None:
        return Stored.NO_KEYS
    if refusal is None and limit is not None:
        held = tx.execute(_UPDATES, {"round": upload.round_id}).scalar_one()
        refusal = Stored.FULL if held >= limit else None
    if refusal is not None:
        _note_late(tx, seen, upload.round_id, refusal, upload.session_id, now)
        return refusal
    _record(tx, UPDATE, upload, now)
    store_body(tx)
    return Stored.STORED


def knows_session(tx: Connection, session_id: bytes) -> bool:
    """Return whether a session with this id takes part in any round."""
    return tx.execute(_KNOWN, {"session": session_id}).first() is not None


def keys_digest(tx: Connection, round_id: bytes, session_id: bytes) -> bytes | None:
    """Return the digest of a session's keys, or None if they have not arrived in this round."""
    digest: bytes | None = tx.execute(_KEYS_DIGEST, {"round": round_id, "session": session_id}).scalar_one_or_none()
    return digest


def body_names(tx: Connection, round_id: bytes, session_ids: Sequence[bytes]) -> list[BodyNames]:
    """Return which bodies are recorded for these sessions, in this order; raise unless each of them is complete."""
    rows = tx.execute(_BODY_NAMES, {"round": round_id, "session_ids": list(session_ids)})
    found = {row.session_id: BodyNames(*row) for row in rows}
    try:
        return [found[session_id] for session_id in session_ids]
    except KeyError:
        raise NotRecordedError("a session on the list is not complete here") from None


def has_update(tx: Connection, round_id: bytes, session_id: bytes) -> bool:
    """Return whether the update of this session of this round is here."""
    return tx.execute(_UPDATED, {"round": round_id, "session": session_id}).first() is not None


def session_summaries(tx: Connection, round_id: bytes) -> list[SessionSummary]:
    """Return the progress of each session of a round, sorted by id."""
    return [SessionSummary(*row) for row in tx.execute(_SUMMARIES, {"round": round_id})]


def counts(tx: Connection, round_id: bytes) -> Counts:
    """Return how many sessions of a round reached each phase."""
    return Counts(*tx.execute(_COUNT, {"round": round_id}).one())


def seats(tx: Connection, round_id: bytes, since: float) -> TakenSeats:
    """Return how many seats of a round are taken, and the sessions expected to take one: they joined after `since`."""
    return TakenSeats(*tx.execute(_SEATS, {"round": round_id, "since": since}).one())


def finished(tx: Connection, task_id: bytes, now: float, *, rounds: int) -> Turnout:
    """Return how many sessions finished in the last few rounds whose upload deadline has passed."""
    return Turnout(*tx.execute(_FINISHED, {"task": task_id, "now": now, "limit": rounds}).one())


def _is_full(tx: Connection, round_id: bytes, limit: int) -> bool:
    return bool(tx.execute(_TAKEN, {"round": round_id}).scalar_one() >= limit)


def _note_late(tx: Connection, seen: _Seen, round_id: bytes, refusal: Stored, session_id: bytes, now: float) -> None:
    """Record that a device of this round sent something, although too late to count."""
    if seen.round_id == round_id and refusal in (Stored.CLOSED, Stored.FULL):
        tx.execute(_LATE, {"session": session_id, "now": now})
        note_late(tx, seen.device)


def _look(tx: Connection, round_id: bytes, session_id: bytes) -> _Seen:
    lock_round(tx, round_id)
    row = tx.execute(_LOOK, {"round": round_id, "session": session_id}).one_or_none()
    if row is None:
        raise NotRecordedError("this round is not in the ledger")
    state, join_until, *session = row
    return _Seen(RoundState(state), join_until, *session)


def _refusal(seen: _Seen, upload: Upload, *, held: bytes | None) -> Stored | None:
    """Return the answer to an upload that contains nothing new or arrives too late, else None."""
    if seen.round_id not in {None, upload.round_id}:
        return Stored.OTHER_ROUND
    if held is not None:
        return Stored.SAME if held == upload.body_digest else Stored.DIFFERENT
    return None if seen.state is RoundState.OPEN else Stored.CLOSED


def _add_with_keys(tx: Connection, upload: Upload, now: float) -> bool:
    row = {
        "session_id": upload.session_id,
        "round_id": upload.round_id,
        "admitted_at": now,
        "keys_digest": upload.body_digest,
        "keys_public": upload.public_digest,
        "keys_at": now,
    }
    return insert_new(tx, sessions_table, row)


def _record(tx: Connection, part: str, upload: Upload, now: float) -> None:
    values: dict[str, Any] = {
        "session": upload.session_id,
        f"new_{part}_digest": upload.body_digest,
        f"new_{part}_public": upload.public_digest,
        f"new_{part}_at": now,
    }
    tx.execute(_SET[part], values)


def forget_sessions(tx: Connection, *, ended_before: float, tasks: Sequence[bytes] = ()) -> int:
    """Remove some sessions of rounds that ended before a time or belong to these tasks; return how many."""
    found = tx.execute(_OLD, {"before": ended_before, "tasks": list(tasks)}).all()
    if found:
        names = {"names": [row.session_id for row in found]}
        tx.execute(_FORGET_BODIES, names)
        tx.execute(_FORGET, names)
        rounds_of = sorted({row.round_id.hex() for row in found})
        tx.execute(_FORGET_ANSWERS, {"names": [f"{kind}:{one}" for kind in _ANSWERS for one in rounds_of]})
    return len(found)
