"""Reading rows without taking part: exact, unknown to each server, kept by none, and never a way to write."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.devices.carrier import Carrier, dense, published, taste_of, train
from tests.devices.scripted import KEYS, UPDATE, RandomStream, a_device, flipped
from tests.simulation.pair import TICKET_KEY, Pair, a_pair
from tests.simulation.test_refusals import assert_problem, joined, stored

from secemb_party.tickets import CLOCK_TOLERANCE, READ_DOMAIN, issue_ticket
from secemb_sdk.errors import EnrolmentError, GoneError, UnavailableError
from secemb_sdk.recommend.copy import Shelf
from secemb_sdk.recommend.private_read import ReadSession, RowsRead, read_rows
from secemb_sdk.recommend.rank import Scored, rank_privately, recommend
from secemb_sdk.recommend.sync import sync
from secemb_sdk.steps import Answer, Request
from secemb_shared.errors import RowTagError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.table import TableFormat
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes

pytestmark = pytest.mark.asyncio
CANDIDATES = np.array([3, 149, 7, 0, 60, 61, 62, 99, 100, 12, 4], dtype=np.int64)  # capacity is 4: three reads


@asynccontextmanager
async def a_catalogue(*, open_enrolment: bool = True, rounds_open: bool = True) -> AsyncIterator[Pair]:
    """Run a pair whose table is not all zeros, in a round that is open."""
    task: dict[str, object] = {"items": 150, "row_width": 5, "bins": 8, "initial_scale": "1"}
    async with a_pair(open_enrolment=open_enrolment, **task) as pair:  # type: ignore[arg-type]
        if rounds_open:
            await pair.step()
        yield pair


async def read(carrier: Carrier, items: Indices = CANDIDATES, token: str | None = None) -> RowsRead:
    return await carrier.run(read_rows(carrier.exchange(token), carrier.pair.task, items))


async def rank(carrier: Carrier, candidates: Indices, random_bytes: RandomBytes = secure_bytes) -> Scored:
    model, private = taste_of(carrier.pair)
    exchange = carrier.exchange(random_bytes=random_bytes)
    return await carrier.run(rank_privately(exchange, carrier.pair.task, model, candidates, private=private))


async def leave(pair: Pair, session: bytes) -> tuple[RoundSpec, str]:
    """Return the round and the ticket that server 0 gives to a reader."""
    path = f"https://server0/v1/tasks/{pair.task.task_id.hex()}/read"
    answer = await pair.send(0, httpx.Request("POST", path, json={"session": session.hex()}))
    assert answer is not None
    assert answer.status_code == 200, answer.text
    return RoundSpec.decode(answer.json()["round"].encode(), pair.task), answer.json()["ticket"]


async def send(
    pair: Pair, role: int, round_: RoundSpec, session: bytes, what: str, body: bytes, ticket: str
) -> httpx.Response | None:
    path = f"https://server{role}/v1/rounds/{round_.digest.hex()}/sessions/{session.hex()}/{what}"
    headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket, "secemb-proof": "00" * 16}
    method = "POST" if what == "rows" else "PUT"
    return await pair.send(role, httpx.Request(method, path, content=body, headers=headers))


def everything_stored(pair: Pair, role: int) -> list[str]:
    """Return the whole ledger and the names of all other files of a server."""
    folder = pair.folder / f"server{role}"
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        lines = list(ledger.iterdump())
    return lines + sorted(str(path) for path in folder.rglob("*") if "ledger" not in path.name)


def a_session(round_: RoundSpec, items: Indices = CANDIDATES[:4]) -> tuple[bytes, ReadSession]:
    session = ReadSession(round_, items, secure_bytes(32))
    return session._session.session_id, session


async def test_rows_come_bit_for_bit_in_as_many_reads_as_are_needed() -> None:
    async with a_catalogue() as pair:
        carrier = Carrier(pair)
        found = await read(carrier)
        found.check()
        rows = pair.parties[0].models.load(0).rows
        assert sorted(found.items.tolist()) == sorted(CANDIDATES.tolist())
        assert np.array_equal(found.rows, rows[found.items])
        paths = [request.path.rsplit("/", 1)[-1] for request in carrier.sent]
        assert paths.count("read") * 2 == paths.count("rows")
        assert paths.count("read") >= 3


async def test_ranking_candidates_is_recommending_restricted_to_them(tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        model, private = taste_of(pair)
        part = dense(pair, 0)
        carrier, shelf, now = Carrier(pair), Shelf(tmp_path, pair.task), await published(pair)
        steps = sync(carrier.exchange(), shelf, now, dense=part, format_=TableFormat.FLOAT32)
        copy = await carrier.run(steps)
        everything = recommend(model, copy, private=private, dense=part, k=150)
        expected = [(item, score) for item, score in everything if item in CANDIDATES]
        assert await rank(Carrier(pair), CANDIDATES) == expected, "the same scores to the last bit"


async def test_unknown_and_repeated_candidates_are_left_out() -> None:
    async with a_catalogue() as pair:
        found = await rank(Carrier(pair), np.array([5, 5, -1, 150, 2**40]))
        assert [item for item, _ in found] == [5]


async def test_nothing_is_asked_where_there_is_nothing_to_rank() -> None:
    async with a_catalogue() as pair:
        carrier = Carrier(pair)
        assert await rank(carrier, np.array([-1, 2**40])) == []
        assert carrier.sent == []


async def test_nothing_of_a_read_is_stored() -> None:
    async with a_catalogue() as pair:
        await rank(Carrier(pair), CANDIDATES)  # what is made on the way is made now
        before = [everything_stored(pair, role) for role in (0, 1)]
        await rank(Carrier(pair), CANDIDATES)
        assert [everything_stored(pair, role) for role in (0, 1)] == before
        device = a_device(pair, 1)
        await device.take_part()
        assert [everything_stored(pair, role) for role in (0, 1)] != before, "this test would see it"


async def test_a_read_makes_every_session_anew() -> None:
    async with a_catalogue() as pair:
        carrier = Carrier(pair)
        await read(carrier)
        await read(carrier)
        bodies = [request.body for request in carrier.sent if request.path.endswith("/rows")]
        names = [request.path for request in carrier.sent if request.path.endswith("/rows") and not request.server]
        assert len(set(bodies)) == len(bodies)
        assert len(set(names)) == len(names)


async def test_a_session_that_reads_has_no_way_to_write() -> None:
    async with a_catalogue() as pair:
        round_, _ = await leave(pair, bytes(16))
        _, session = a_session(round_)
        assert [name for name in dir(session) if not name.startswith("_")] == ["keys", "read", "truncated"]


async def test_a_read_ticket_opens_neither_keys_nor_update() -> None:
    async with a_catalogue() as pair:
        device = await joined(pair)
        round_, ticket = await leave(pair, device.name)
        for role in (0, 1):
            for what in (KEYS, UPDATE):
                answer = await send(pair, role, round_, device.name, what, device.body(role, what), ticket)
                assert_problem(answer, 403, "ticket-refused")
            assert await stored(pair, role) == (0, 0)


async def test_a_join_ticket_does_not_open_a_read() -> None:
    async with a_catalogue() as pair:
        device = await joined(pair)
        for role in (0, 1):
            answer = await send(pair, role, device.spec, device.name, "rows", device.body(role, KEYS), device.ticket)
            assert_problem(answer, 403, "ticket-refused")


async def test_no_update_follows_a_read_even_with_a_ticket_to_take_part() -> None:
    async with a_catalogue() as pair:
        device = a_device(pair, 1)
        round_, ticket = await leave(pair, device.name)
        device.begin(round_.encode())
        for role in (0, 1):
            answer = await send(pair, role, round_, device.name, "rows", device.body(role, KEYS), ticket)
            assert answer is not None
            assert answer.status_code == 200
        device.ticket = issue_ticket(TICKET_KEY, round_.digest, device.name, 10**6)
        for role in (0, 1):
            assert_problem(await device.put(role, UPDATE), 404, "session-unknown")
            assert await stored(pair, role) == (0, 0)


@pytest.mark.parametrize("role", [0, 1])
async def test_a_session_that_takes_part_cannot_be_read_with(role: int) -> None:
    async with a_catalogue() as pair:
        device = await joined(pair, 1, KEYS)
        round_, ticket = await leave(pair, device.name)
        before = everything_stored(pair, role)
        for body in (device.body(role, KEYS), flipped(device.body(role, KEYS), 24)):
            answer = await send(pair, role, round_, device.name, "rows", body, ticket)
            assert_problem(answer, 409, "session-conflict")
        assert everything_stored(pair, role) == before
        assert_problem(await send(pair, role, round_, device.name, "rows", b"", ticket), 409, "session-conflict")


async def test_what_a_read_shares_with_a_session_of_the_same_id_is_no_seed() -> None:
    """Two KEYS of one label share AES keys, which are public; the paths stay apart because seeds are drawn anew."""
    async with a_catalogue() as pair:
        round_, _ = await leave(pair, bytes(16))
        sessions = [ReadSession(round_, CANDIDATES[:4], secure_bytes(32)) for _ in range(2)]
        seeds = [body[24:40] for session in sessions for body in session.keys]
        assert len(set(seeds)) == 4


async def test_a_read_ticket_is_for_one_session_and_a_short_time() -> None:
    async with a_catalogue() as pair:
        round_, _ = await leave(pair, bytes(16))
        name, session = a_session(round_)
        _, ticket = await leave(pair, name)
        other, another = a_session(round_)
        assert_problem(await send(pair, 0, round_, other, "rows", another.keys[0], ticket), 403, "ticket-refused")
        pair.clock.now += 120
        answer = await send(pair, 1, round_, name, "rows", session.keys[1], ticket)
        assert answer is not None
        assert answer.status_code == 200
        pair.clock.now += 1
        assert_problem(await send(pair, 0, round_, name, "rows", session.keys[0], ticket), 403, "ticket-refused")
        pair.clock.now += CLOCK_TOLERANCE  # server 0 wrote the time, and server 1's clock may be ahead
        assert_problem(await send(pair, 1, round_, name, "rows", session.keys[1], ticket), 403, "ticket-refused")


async def test_who_has_no_token_cannot_read() -> None:
    async with a_catalogue(open_enrolment=False) as pair:
        for token in (None, "guessed"):
            with pytest.raises(EnrolmentError):
                await read(Carrier(pair), token=token)


@pytest.mark.parametrize("role", [0, 1])
async def test_a_message_that_is_no_keys_of_this_session_is_refused(role: int) -> None:
    async with a_catalogue() as pair:
        round_, _ = await leave(pair, bytes(16))
        name, session = a_session(round_)
        _, ticket = await leave(pair, name)
        good = session.keys[role]
        wrong = [
            (good[:-1], "message-length"),
            (good + b"\0", "message-length"),
            (flipped(good, 0), "message-encoding"),
            (flipped(good, 8), "message-binding"),
            (session.keys[1 - role], "message-binding"),
        ]
        for body, slug in wrong:
            assert_problem(await send(pair, role, round_, name, "rows", body, ticket), 400, slug)


@pytest.mark.parametrize("role", [0, 1])
async def test_a_crowded_server_says_so_before_it_reads_the_body(role: int) -> None:
    async with a_catalogue() as pair:
        round_, _ = await leave(pair, bytes(16))
        name, session = a_session(round_)
        _, ticket = await leave(pair, name)
        asked = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal asked
            asked += 1
            yield session.keys[role]

        path = f"https://server{role}/v1/rounds/{round_.digest.hex()}/sessions/{name.hex()}/rows"
        headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket}
        memory = pair.parties[role].memory
        memory.most = 0
        answer = await pair.send(role, httpx.Request("POST", path, content=body(), headers=headers))
        assert_problem(answer, 429, "busy")
        assert answer is not None
        assert answer.headers["retry-after"]
        assert asked == 0
        memory.most = 1
        answer = await pair.send(role, httpx.Request("POST", path, content=body(), headers=headers))
        assert answer is not None
        assert (answer.status_code, asked) == (200, 1)


async def test_before_the_first_round_there_is_nothing_to_read_in() -> None:
    async with a_catalogue(rounds_open=False) as pair:
        with pytest.raises(UnavailableError, match="no round") as caught:
            await read(Carrier(pair))
        assert caught.value.seconds


async def test_between_rounds_the_last_one_is_read_in() -> None:
    async with a_catalogue() as pair:
        await train(pair)
        assert await pair.parties[0].ledger.current_round(pair.task.task_id) is None
        found = await read(Carrier(pair))
        assert found.round is not None
        assert found.round.model_version == 0
        assert np.array_equal(found.rows, pair.parties[0].models.load(0).rows[found.items])


async def test_a_round_that_server_1_has_not_heard_of_is_not_read_in() -> None:
    async with a_catalogue() as pair:
        await train(pair)
        pair.line.lose_requests = 1
        await pair.step()  # opens the next round, and cannot tell server 1
        record = await pair.parties[0].ledger.current_round(pair.task.task_id)
        assert record is not None
        round_, _ = await leave(pair, bytes(16))
        assert round_.number == record.number - 1


async def test_rows_of_two_versions_are_never_mixed() -> None:
    async with a_catalogue() as pair:
        carrier = Carrier(pair)
        steps = read_rows(carrier.exchange(), pair.task, CANDIDATES)
        moved = False

        async def send_and_move(request: Request) -> object:
            nonlocal moved
            answer = await Carrier.send(carrier, request)
            if request.path.endswith("/rows") and request.server == 1 and not moved:
                moved = True
                await train(pair)
                await pair.step()  # the next round reads the next version
            return answer

        carrier.send = send_and_move  # type: ignore[assignment, method-assign]
        found = await carrier.run(steps)
        assert moved
        assert found.round is not None
        assert found.round.model_version == 1
        assert np.array_equal(found.rows, pair.parties[0].models.load(1).rows[found.items])
        assert sorted(found.items.tolist()) == sorted(CANDIDATES.tolist())


@pytest.mark.parametrize("role", [0, 1])
async def test_a_wrong_answer_is_noticed_and_changes_nothing_that_is_sent(role: int) -> None:
    async with a_catalogue() as pair:
        usual, watched = Carrier(pair), Carrier(pair, tamper=Spoiling(role))
        await rank(usual, CANDIDATES, random_bytes=RandomStream(b"the same draws"))
        with pytest.raises(RowTagError):
            await rank(watched, CANDIDATES, random_bytes=RandomStream(b"the same draws"))
        assert len(usual.sent) >= 3 * 3 + 1, "three reads of three requests, and the dense part"
        kinds = [[(one.server, one.path.rsplit("/", 1)[-1]) for one in carrier.sent] for carrier in (usual, watched)]
        assert kinds[0] == kinds[1]


class Spoiling:
    """Alters every slot of the first answer of one server."""

    def __init__(self, role: int) -> None:
        self._role, self._done = role, False

    def __call__(self, request: Request, answer: Answer) -> Answer:
        if self._done or request.server != self._role or not request.path.endswith("/rows"):
            return answer
        self._done = True
        return replace(answer, body=answer.body[:24] + bytes(byte ^ 1 for byte in answer.body[24:]))


async def test_a_ticket_that_ran_out_is_said_to_be_over() -> None:
    async with a_catalogue() as pair:

        def slow(request: Request, answer: Answer) -> Answer:
            pair.clock.now += 200 if request.path.endswith("/read") else 0
            return answer

        with pytest.raises(GoneError):
            await read(Carrier(pair, tamper=slow))


async def test_a_ticket_of_the_right_domain_from_another_key_is_refused() -> None:
    async with a_catalogue() as pair:
        round_, _ = await leave(pair, bytes(16))
        name, session = a_session(round_)
        other = Ed25519PrivateKey.from_private_bytes(bytes(32))
        ticket = issue_ticket(other, round_.digest, name, 10**6, domain=READ_DOMAIN)
        assert_problem(await send(pair, 0, round_, name, "rows", session.keys[0], ticket), 403, "ticket-refused")
