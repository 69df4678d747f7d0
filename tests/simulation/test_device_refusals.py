"""What a device of the SDK does when something stands against it: it keeps still, comes back, or says why not."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.devices.phone import Marking, Phone, a_phone, contributed, noticed, puts
from tests.simulation.pair import RELAYED, a_pair

from secemb_sdk.context import Policy, round_bytes
from secemb_sdk.errors import DamagedError, EnrolmentError, MisfitError, PinError, PolicyError
from secemb_sdk.models import Floats, Gradients, MatrixFactorisation, Ratings
from secemb_sdk.round.contribute import Contributed, Dropped, NotNow
from secemb_sdk.steps import Answer, Request

pytestmark = pytest.mark.asyncio


# When training fails.


class Failing(Marking):
    """Fails in training."""

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        raise ZeroDivisionError("a secret of the model")


class Infinite(Marking):
    """Learns something infinite."""

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        return replace(super().gradients(rows, dense, private, ratings), private=np.array([np.inf], np.float32))


def flip_a_row(request: Request, answer: Answer) -> Answer:
    """Server 1 answers every read with a bit changed in all rows."""
    if request.server == 1 and request.path.endswith("/keys"):
        words = np.frombuffer(answer.body, np.uint8).copy()
        words[24:] ^= 1
        return replace(answer, body=words.tobytes())
    return answer


def shorten_an_answer(request: Request, answer: Answer) -> Answer:
    return replace(answer, body=answer.body[:-1]) if request.path.endswith("/keys") else answer


def show_another_dense_part(request: Request, answer: Answer) -> Answer:
    if request.server == 1 and "/dense/" in request.path:
        return Answer(status=200, body=bytes(8))
    return answer


def lengthen_the_dense_part(request: Request, answer: Answer) -> Answer:
    if "/dense/" in request.path:
        return Answer(status=200, body=bytes(12)) if request.server == 0 else Answer(status=304)
    return answer


@pytest.mark.parametrize(
    ("fields", "trouble"),
    [
        ({"model": Failing(1)}, "ZeroDivisionError"),
        ({"model": Infinite(1)}, "NotFiniteLossError"),
        ({"alter": flip_a_row}, "RowTagError"),
        ({"alter": shorten_an_answer}, "LengthError"),
        ({"alter": show_another_dense_part, "dense": 1.0}, "CopyError"),
        ({"alter": lengthen_the_dense_part}, "CopyError"),
    ],
    ids=["model fails", "not finite", "wrong row", "short answer", "two dense parts", "long dense part"],
)
async def test_a_device_that_cannot_train_uploads_zeros(fields: dict[str, Any], trouble: str) -> None:
    fields = dict(fields)
    scale = "1" if fields.pop("dense", None) else "0"
    async with a_pair(initial_scale=scale) as pair:
        await pair.step()
        before = pair.parties[0].models.load(0)
        phone = Phone(pair, pair.folder / "phone", fields.pop("model", Marking(1)), **fields)
        phone.log({3: 4.0})
        healthy = a_phone(pair, 2)
        outcome = await phone.contribute()
        assert isinstance(outcome, Contributed)
        assert outcome.trouble == trouble
        await contributed(healthy)
        assert puts(phone) == puts(healthy)
        await pair.finish()
        moved = (before.rows.astype(np.float64) - pair.parties[0].models.load(1).rows) * 2
        assert moved[3, 0] == pytest.approx(4.0, abs=1e-5)  # the healthy device's mark alone: it has item 3 too
        context = phone.open()
        assert context.vault.private() is None
        kinds = {"RowTagError": {"rows"}, "LengthError": {"rows"}, "CopyError": {"dense"}}
        assert set(context.vault.detections()) == kinds.get(trouble, set())


# What stands against taking part.


async def test_a_policy_that_says_no_lets_nothing_out() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0, allowed=lambda: False)
        assert await phone.contribute() == NotNow(60.0, "the policy does not allow requests right now")
        assert phone.seen.requests == []


async def test_a_policy_that_says_no_in_the_middle_keeps_the_session() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.allowed = lambda: (0, "keys") not in puts(phone)
        assert isinstance(await phone.contribute(), NotNow)
        assert puts(phone) == [(0, "keys"), (1, "keys")]
        phone.allowed = lambda: True
        assert (await contributed(phone)).complete
        phone.seen.check()


async def test_a_budget_that_is_too_small_stops_before_joining() -> None:
    async with a_pair() as pair:
        await pair.step()
        needed = round_bytes(pair.task)
        phone = a_phone(pair, 0, options={"policy": Policy(pace_seconds=0.0, bytes=needed - 1)})
        with pytest.raises(PolicyError, match=f"{needed:,} bytes"):
            await phone.contribute()
        assert "join" not in {what for _, _, what in phone.seen.requests}
        phone.options = {"policy": Policy(pace_seconds=0.0, bytes=needed)}
        receipt = await contributed(phone)
        assert sum(receipt.sent) + sum(receipt.received) <= needed


async def test_an_unknown_token_is_an_error() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        phone = a_phone(pair, 0, token="nobody's")
        with pytest.raises(EnrolmentError, match="ask its operator") as raised:
            await phone.contribute()
        assert "nobody" not in str(raised.value)


@pytest.mark.parametrize("model", [MatrixFactorisation(dimension=1), MatrixFactorisation(dimension=5)])
async def test_a_model_of_another_shape_is_an_error_before_joining(model: MatrixFactorisation) -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0, options={"model": model})
        with pytest.raises(MisfitError, match="open the device with the task's model"):
            await phone.contribute()
        assert puts(phone) == []


async def test_another_model_than_the_home_was_trained_with_is_an_error() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        await contributed(phone)
        phone.model.private_size = 3
        with pytest.raises(MisfitError, match="a different model"):
            await phone.contribute()


@pytest.mark.parametrize("server", [0, 1])
async def test_a_server_that_shows_another_task_is_not_sent_anything(server: int) -> None:
    async with a_pair() as pair:
        await pair.step()
        text = pair.task.encode().decode()

        def alter(request: Request, answer: Answer) -> Answer:
            other = answer.body.replace(b"simulation", b"simulatiom")
            assert other != answer.body or text not in answer.body.decode(errors="replace")
            return replace(answer, body=other) if request.server == server else answer

        phone = a_phone(pair, 0, alter=alter)
        with pytest.raises(PinError, match=f"server {server} announces a different task"):
            await phone.contribute()
        assert {method for _, method, _ in phone.seen.requests} == {"GET"}
        assert noticed(phone) == {"task"}


async def test_servers_that_announce_different_rounds_get_no_keys() -> None:
    async with a_pair() as pair:
        await pair.step()

        def alter(request: Request, answer: Answer) -> Answer:
            altered = replace(answer, body=answer.body.replace(b'\\"round\\":0', b'\\"round\\":1'))
            return altered if request.server else answer

        phone = a_phone(pair, 0, alter=alter)
        outcome = await phone.contribute()
        assert isinstance(outcome, NotNow)
        assert "different rounds" in outcome.reason
        assert noticed(phone) == {"round"}
        assert puts(phone) == []
        phone.alter = lambda _, answer: answer
        assert (await contributed(phone)).round == 0  # with the place that it has already


async def test_a_round_that_opens_between_two_questions_is_joined() -> None:
    async with a_pair() as pair:
        await pair.step()
        stale = 0

        def alter(request: Request, answer: Answer) -> Answer:
            nonlocal stale
            if request.server == 1 and request.method == "GET" and "/dense/" not in request.path:
                stale += 1
                if stale == 2:  # the first is for the task itself
                    return replace(answer, body=answer.body.replace(b'\\"round\\":0', b'\\"round\\":7'))
            return answer

        assert (await contributed(a_phone(pair, 0, alter=alter))).round == 0


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"task": 5}', b"\xff", b"[" * 5000],
    ids=["none", "list", "empty", "number", "binary", "deep"],
)
@pytest.mark.parametrize("where", ["tasks", "join", "update"])
async def test_an_answer_that_makes_no_sense_is_not_now(body: bytes, where: str) -> None:
    async with a_pair() as pair:
        await pair.step()

        def alter(request: Request, answer: Answer) -> Answer:
            hit = request.path.endswith(where) or (where == "tasks" and request.path.endswith(pair.task.task_id.hex()))
            return replace(answer, body=body) if hit else answer

        phone = a_phone(pair, 0, alter=alter, seconds=5.0)
        outcome = await phone.contribute()
        assert isinstance(outcome, NotNow)
        assert ("server 1 did not acknowledge the update" in outcome.reason) == (where == "update")
        phone.alter = lambda _, answer: answer
        assert (await contributed(phone)).complete


# Sessions that do not end well.


async def test_a_conflict_drops_the_session_and_says_so() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: Answer(status=409) if request.path.endswith("/update") else answer
        outcome = await phone.contribute()
        assert isinstance(outcome, Dropped)
        assert "different message" in outcome.reason
        phone.alter = lambda _, answer: answer
        assert (await contributed(phone)).complete
        assert [one.complete for one in phone.open().vault.receipts()] == [False, True]
        assert len(phone.seen.rounds) == 2  # another session, with paths of its own


@pytest.mark.parametrize("status", [403, 404, 410])
@pytest.mark.parametrize("what", ["keys", "update"])
async def test_a_session_whose_round_is_over_is_dropped(status: int, what: str) -> None:
    slug = {403: "ticket-refused", 404: "round-unknown", 410: "round-closed"}[status]
    document = f'{{"type": "urn:secemb:problem:{slug}"}}'.encode()
    refusal = Answer(status=status, headers={"content-type": "application/problem+json"}, body=document)
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: refusal if request.path.endswith(f"/{what}") else answer
        outcome = await phone.contribute()
        assert isinstance(outcome, Dropped)
        context = phone.open()
        assert context.vault.session() is None
        assert [one.complete for one in context.vault.receipts()] == [False]


@pytest.mark.parametrize("way", [{}, RELAYED], ids=["direct", "relayed"])
async def test_a_device_whose_keys_find_the_round_full_drops_the_session_and_comes_back(way: dict[str, Any]) -> None:
    async with a_pair(**way) as pair:
        await pair.step()
        phone, seats = a_phone(pair, 0), pair.server0.leader.seats
        limit = seats.limit

        def fill(request: Request, answer: Answer) -> Answer:
            seats.limit = 0 if request.path.endswith("/join") else seats.limit
            return answer

        phone.alter = fill
        outcome = await phone.contribute()
        assert isinstance(outcome, NotNow)
        assert "full" in outcome.reason
        assert outcome.seconds >= 1
        context = phone.open()
        assert context.vault.session() is None
        assert [one.complete for one in context.vault.receipts()] == [False]
        context.vault.close()
        phone.alter, seats.limit = (lambda _, answer: answer), limit
        pair.clock.now += 6
        assert (await contributed(phone)).complete
        assert len(phone.seen.rounds) == 2  # another session, with paths of its own


async def test_a_device_that_comes_back_too_late_begins_anew_at_once() -> None:
    async with a_pair() as pair:
        await pair.step()
        late, others = a_phone(pair, 0), [a_phone(pair, 1), a_phone(pair, 2)]
        late.allowed = lambda: not puts(late)
        assert isinstance(await late.contribute(), NotNow)
        for phone in others:
            await contributed(phone)
        pair.clock.now += 40
        await pair.finish()
        await pair.step()
        late.allowed = lambda: True
        assert (await contributed(late)).round == 1
        assert [(one.round, one.complete) for one in late.open().vault.receipts()] == [(0, False), (1, True)]


async def test_an_updated_app_drops_a_session_that_it_would_build_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.allowed = lambda: not puts(phone)
        await phone.contribute()
        phone.allowed = lambda: True
        from secemb_sdk.round import contribute

        honest = contribute._build
        monkeypatch.setattr(contribute, "_build", lambda round_, keyed: honest(round_, replace(keyed, seed=bytes(32))))
        outcome = await phone.contribute()
        assert isinstance(outcome, Dropped)
        assert "updated" in outcome.reason
        phone.seen.check()
        assert (await contributed(phone)).complete


async def test_a_damaged_session_is_dropped_and_damaged_copies_are_fetched_anew() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.allowed = lambda: not puts(phone)
        await phone.contribute()
        phone.allowed = lambda: True
        for name in ("session", "task", "dense"):
            (phone.folder / name).write_bytes(b"nonsense")
        assert await phone.contribute() == Dropped("the session in the home is corrupted", 5.0)
        assert (await contributed(phone)).complete
        phone.seen.check()
        (phone.folder / "private").write_bytes(b"nonsense")
        with pytest.raises(DamagedError, match="private"):
            await phone.contribute()


async def test_what_is_forgotten_in_the_middle_of_a_round_stays_forgotten() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        context = phone.open()

        def alter(request: Request, answer: Answer) -> Answer:
            if request.path.endswith("/keys"):
                context.vault.forget()
            return answer

        phone.alter = alter
        from secemb_sdk.round.contribute import contribute

        outcome = await phone.drive(contribute(context))
        assert isinstance(outcome, Dropped)
        assert "erased" in outcome.reason
        assert (context.vault.session(), context.vault.private(), dict(context.vault.ratings())) == (None, None, {})
        assert "update" not in {what for _, what in puts(phone)}


async def test_a_server_that_asks_for_time_gets_it() -> None:
    async with a_pair() as pair:
        await pair.step()
        refused = 0

        def alter(request: Request, answer: Answer) -> Answer:
            nonlocal refused
            if request.path.endswith("/update") and refused < 2:
                refused += 1
                return Answer(status=429, headers={"retry-after": "4"})
            return answer

        phone = a_phone(pair, 0, alter=alter)
        await contributed(phone)
        times = [time for what, time in phone.sent_at if what == "update"]
        assert all(4 <= later - earlier <= 6 for earlier, later in pairwise(times[:3]))
        phone.seen.check()


async def test_a_silent_server_costs_no_more_time_than_the_policy_gives() -> None:
    async with a_pair() as pair:
        await pair.step()
        began = pair.clock.now
        phone = a_phone(pair, 0, fault=lambda: "lost", seconds=17.0)
        outcome = await phone.contribute()
        assert isinstance(outcome, NotNow)
        assert "did not respond" in outcome.reason
        assert pair.clock.now - began <= 17.0
        assert 3 < len(phone.sent_at) < 60


@pytest.mark.parametrize(
    "change", [{"ticket": "tické"}, {"ticket": "t" * 129}, {"ticket": "a\nb"}, {"upload_until": 10**400}]
)
async def test_words_that_cannot_be_used_are_not_kept(change: dict[str, object]) -> None:
    def alter(request: Request, answer: Answer) -> Answer:
        if not request.path.endswith("/join") or answer.status != 200:
            return answer
        return replace(answer, body=json.dumps(json.loads(answer.body) | change).encode())

    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0, alter=alter)
        assert isinstance(await phone.contribute(), NotNow | Contributed)
        phone.alter = lambda _, answer: answer
        assert isinstance(await phone.contribute(), NotNow | Contributed)
