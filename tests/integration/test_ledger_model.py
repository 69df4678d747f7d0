"""Whatever is asked in whatever order, the ledger answers as a dictionary would that forgets nothing but bodies."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.databases import NOW, WINDOW, keys_body, name, open_round, upload

from secemb_party.ledger import Admission, Counts, Ledger, RoundState, Stored

LIMIT, WAITING = 1, 2
OPEN = RoundState.OPEN
EXAMPLES = itertools.count()  # every example has its own rounds and sessions, and so needs no database of its own

rounds, session_names, devices = st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)
bodies = st.sampled_from([b"one", b"two"])
steps = st.one_of(
    st.tuples(st.just("admit"), rounds, session_names, devices),
    st.tuples(st.just("keys"), rounds, session_names, bodies, st.booleans()),
    st.tuples(st.just("update"), rounds, session_names, bodies),
    st.tuples(st.just("leave"), rounds, st.sampled_from([RoundState.SEALING, RoundState.ABORTED])),
    st.tuples(st.just("forget")),
)


@dataclass
class Session:
    round: int
    device: int | None
    keys: bytes | None = None
    update: bytes | None = None
    forgotten: bool = False


@dataclass
class Model:
    """What the ledger must do, said as simply as it can be."""

    states: list[RoundState] = field(default_factory=lambda: [OPEN, OPEN])
    sessions: dict[int, Session] = field(default_factory=dict)

    def of_round(self, at: int) -> list[Session]:
        return [session for session in self.sessions.values() if session.round == at]

    def admit(self, at: int, who: int, device: int) -> Admission:
        session = self.sessions.get(who)
        if session is not None:
            return Admission.ALREADY if (session.round, session.device) == (at, device) else Admission.SESSION_TAKEN
        if self.states[at] is not OPEN:
            return Admission.CLOSED
        if device in [other.device for other in self.of_round(at)]:
            return Admission.DEVICE_TAKEN
        without_keys = len(self.of_round(at)) - self.taken(at)
        if self.taken(at) >= LIMIT or without_keys >= WAITING:
            return Admission.FULL
        self.sessions[who] = Session(at, device)
        return Admission.ADMITTED

    def keys(self, at: int, who: int, body: bytes, admission: bool) -> Stored:
        answer = self.settled(at, who, "keys", body)
        if answer is None and who not in self.sessions and admission:
            return Stored.UNKNOWN
        if answer is None and self.taken(at) >= LIMIT:
            return Stored.FULL
        if answer is None and who not in self.sessions:
            self.sessions[who] = Session(at, None)
        return answer or self.store(who, "keys", body)

    def taken(self, at: int) -> int:
        return sum(session.keys is not None for session in self.of_round(at))

    def update(self, at: int, who: int, body: bytes) -> Stored:
        answer = self.settled(at, who, "update", body)
        if answer is None and (who not in self.sessions or self.sessions[who].keys is None):
            return Stored.NO_KEYS
        return answer or self.store(who, "update", body)

    def settled(self, at: int, who: int, part: str, body: bytes) -> Stored | None:
        session = self.sessions.get(who)
        if session is not None and session.round != at:
            return Stored.OTHER_ROUND
        held = session and getattr(session, part)
        if held is not None:
            return Stored.SAME if held == body else Stored.DIFFERENT
        return None if self.states[at] is OPEN else Stored.CLOSED

    def store(self, who: int, part: str, body: bytes) -> Stored:
        setattr(self.sessions[who], part, body)
        return Stored.STORED

    def forget(self) -> int:
        gone = [s for s in self.sessions.values() if self.states[s.round] is RoundState.ABORTED and not s.forgotten]
        for session in gone:
            session.forgotten = True
        return sum((session.keys is not None) + (session.update is not None) for session in gone)


class Player:
    """Plays steps on a ledger and on the model and compares."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.model = ledger, Model()
        self.salt = next(EXAMPLES)
        self.names = [name(f"{self.salt} session {who}", 16) for who in range(3)]
        self.rounds: list[bytes] = []

    async def play(self, script: list[tuple[Any, ...]]) -> None:
        task_id = name(f"task {self.salt}")
        self.rounds = [await open_round(self.ledger, number, task_id=task_id) for number in (1, 2)]
        for step, *arguments in script:
            await getattr(self, step)(*arguments)
        for at in range(2):
            await self.compare(at)
        await self.ledger.forget_bodies()  # what is left here is not to be found by the next example

    async def admit(self, at: int, who: int, device: int) -> None:
        hashed = name(f"device {device}")
        answer = await self.ledger.admit(
            self.rounds[at], self.names[who], device=hashed, limit=LIMIT, waiting=WAITING, now=NOW, window=WINDOW
        )
        assert answer is self.model.admit(at, who, device)

    async def keys(self, at: int, who: int, body: bytes, admission: bool) -> None:
        message = upload(self.rounds[at], self.names[who], body)
        answer = await self.ledger.put_keys(message, NOW, require_admission=admission, limit=LIMIT)
        assert answer is self.model.keys(at, who, body, admission)

    async def update(self, at: int, who: int, body: bytes) -> None:
        answer = await self.ledger.put_update(upload(self.rounds[at], self.names[who], body), NOW)
        assert answer is self.model.update(at, who, body)

    async def leave(self, at: int, to: RoundState) -> None:
        if self.model.states[at] is OPEN:
            await self.ledger.advance(self.rounds[at], OPEN, to, NOW, reason="the script says so")
            self.model.states[at] = to

    async def forget(self) -> None:
        assert await self.ledger.forget_bodies() == self.model.forget()

    async def compare(self, at: int) -> None:
        members = self.model.of_round(at)
        keys, updates = ([s for s in members if getattr(s, part) is not None] for part in ("keys", "update"))
        assert await self.ledger.counts(self.rounds[at]) == Counts(len(members), len(keys), len(updates))
        for who, session_id in enumerate(self.names):
            session = self.model.sessions.get(who)
            mine = session is not None and session.round == at and not session.forgotten
            expected = session.keys if session is not None and mine else None
            assert await keys_body(self.ledger, self.rounds[at], session_id) == expected


def test_the_ledger_does_as_the_model_does(home: str) -> None:
    with asyncio.Runner() as runner:
        ledger = runner.run(Ledger.open(home, migrate=False))

        @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(steps, min_size=10, max_size=40))
        def check(script: list[tuple[Any, ...]]) -> None:
            runner.run(Player(ledger).play(script))

        try:
            check()
        finally:
            runner.run(ledger.close())
