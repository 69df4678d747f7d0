"""A server 0 that does not pass on what it was sent: server 1 or the device notices, and nothing is counted wrongly."""

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.simulation.pair import IDENTITY, RELAYED, Pair, a_pair
from tests.simulation.phone import Phone, a_phone, contributed, until_contributed

from secemb_party.relay_frames import Frame, Refusal, ReplyReader, read_frames
from secemb_sdk.effects import Answer, Request
from secemb_sdk.errors import PinError
from secemb_sdk.outcome import Contributed, NotNow
from secemb_shared.messages import Kind, RoundSpec, Sizes
from secemb_shared.messages.envelope import envelope
from secemb_shared.messages.relay_key import KEY_ID_BYTES, RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed, sealed_bytes, split_relayed

pytestmark = pytest.mark.asyncio

# For devices that try in vain for a while.
LONG: dict[str, Any] = RELAYED | {"join_seconds": 300, "upload_seconds": 900}
Change = Callable[[Frame], Frame]
Thing = TypeVar("Thing")


def each(change: Change) -> Callable[[bytes], bytes]:
    """Return what a relay does that changes every frame."""
    return lambda data: b"".join(change(frame).encode() for frame in read_frames(data))


def noting(seen: list[Thing]) -> Callable[[Thing], Thing]:
    """Return what changes nothing and remembers everything."""

    def note(thing: Thing) -> Thing:
        seen.append(thing)
        return thing

    return note


def only(step: Kind, change: Change) -> Change:
    return lambda frame: change(frame) if frame.step is step else frame


def flip(frame: Frame, at: int) -> Frame:
    rest = bytearray(frame.rest)
    rest[at] ^= 1
    return replace(frame, rest=bytes(rest))


def refusals(pair: Pair, party: int) -> dict[str, int]:
    return pair.parties[party].metrics.refusals()


async def comes_back(pair: Pair, phones: list[Phone]) -> None:
    """Be honest from now on: everybody contributes, and the sum is that of all of them."""
    pair.line.tamper = pair.line.tamper_reply = None
    for phone in phones:
        phone.alter = lambda _request, answer: answer
    for outcome in await until_contributed(phones):
        assert outcome.trouble is None
    await check_sum(pair, phones)


async def check_sum(pair: Pair, phones: list[Phone]) -> None:
    """End the round; its sum must be exactly that of these devices."""
    await pair.finish()
    for phone in phones:
        phone.seen.check()
    models = [party.models.load(party.models.latest() or 0) for party in pair.parties.values()]
    assert np.array_equal(models[0].rows, models[1].rows)
    mean = sum(phone.model.mark for phone in phones) / len(phones)
    assert models[0].rows[0, 0] == -mean


CHANGES: dict[str, tuple[Change, str]] = {
    "a correction word of the keys": (only(Kind.KEYS, lambda frame: flip(frame, -1)), "relay-altered"),
    "a correction word of the update": (only(Kind.UPDATE, lambda frame: flip(frame, -1)), "relay-altered"),
    "the ephemeral key of a box": (lambda frame: flip(frame, KEY_ID_BYTES), "relay-box"),
    "the content of a box": (lambda frame: flip(frame, KEY_ID_BYTES + 40), "relay-box"),
    "the tag of a box": (lambda frame: flip(frame, sealed_bytes(Kind.KEYS) - 1), "relay-box"),
    "the name of the key": (lambda frame: flip(frame, 0), "relay-key-outdated"),
    "a byte cut off": (lambda frame: replace(frame, rest=frame.rest[:-1]), "message-length"),
    "a byte too many": (lambda frame: replace(frame, rest=frame.rest + b"\0"), "message-length"),
    "another session": (lambda frame: replace(frame, session_id=bytes(16)), "ticket-refused"),
    "another round": (lambda frame: replace(frame, round_id=bytes(32)), "ticket-refused"),
    "another step": (only(Kind.KEYS, lambda frame: replace(frame, step=Kind.SUM_SHARE)), "session-unknown"),
    "no ticket": (lambda frame: replace(frame, ticket=urlsafe_b64encode(bytes(72)).decode()), "ticket-refused"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_is_altered_on_the_way_is_refused_and_counted(name: str) -> None:
    change, slug = CHANGES[name]
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.line.tamper = each(change)
        outcome = await phones[0].contribute()
        assert not isinstance(outcome, Contributed)
        assert refusals(pair, 1)[slug] >= 1
        assert refusals(pair, 0)[slug] >= 1
        await comes_back(pair, phones)


async def test_boxes_that_are_swapped_between_sessions_do_not_open() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(3)]
        boxes: dict[Kind, bytes] = {}

        def swap(frame: Frame) -> Frame:
            size = sealed_bytes(frame.step)
            other = boxes.setdefault(frame.step, frame.rest[:size])
            return replace(frame, rest=other + frame.rest[size:])

        pair.line.tamper = each(swap)
        await contributed(phones[0])  # keeps its own boxes
        assert isinstance(await phones[1].contribute(), NotNow)
        assert refusals(pair, 1)["relay-box"] >= 1
        pair.line.tamper = None
        await until_contributed(phones[1:])
        await check_sum(pair, phones)


async def test_a_box_of_an_earlier_round_does_not_open() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        old: list[Frame] = []
        pair.line.tamper = each(noting(old))
        for phone in phones:
            await contributed(phone)
        await pair.finish()
        await pair.step()
        pair.line.tamper = each(
            only(
                Kind.KEYS, lambda frame: replace(frame, rest=old[0].rest[: sealed_bytes(Kind.KEYS)] + frame.rest[136:])
            )
        )
        assert isinstance(await phones[0].contribute(), NotNow)
        assert refusals(pair, 1)["relay-box"] >= 1


async def test_a_frame_that_is_passed_on_twice_counts_once_and_gets_the_same_reply() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        replies: list[bytes] = []
        pair.line.tamper = lambda data: data + data
        pair.line.tamper_reply = noting(replies)
        for phone in phones:
            await contributed(phone)
        for data in replies:
            first, second = ReplyReader().feed(data)
            assert first.body == second.body
        await pair.finish()
        assert pair.parties[0].models.load(1).rows[0, 0] == -1.5


async def test_an_upload_that_server_0_makes_up_is_refused_by_its_proof() -> None:
    """It knows the round, the session and server 1's public key; it does not know the keys of the session."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.line.tamper = each(only(Kind.UPDATE, lambda frame: forged(pair, frame)))
        assert isinstance(await phones[0].contribute(), NotNow)
        assert refusals(pair, 1)["relay-altered"] >= 1
        await comes_back(pair, phones)


def forged(pair: Pair, frame: Frame) -> Frame:
    record_round = round_of(pair)
    key = newest_key(pair)
    words = bytes(len(frame.rest) - sealed_bytes(Kind.UPDATE))
    content = hashlib.sha256(words).digest() + record_round.digest + bytes(16)
    message = encode_relayed(
        record_round, frame.session_id, Kind.RELAYED_UPLOAD, bytes(24) + words + bytes(8), content, key
    )
    split = split_relayed(record_round, frame.session_id, Kind.RELAYED_UPLOAD, message)
    return replace(frame, rest=split.sealed + words)


def round_of(pair: Pair, **changes: object) -> RoundSpec:
    digest = pair.parties[0].models.load(0).digest
    fields: dict[str, object] = {"task": pair.task, "number": 0, "model_version": 0, "model_digest": digest}
    return RoundSpec(**(fields | changes))  # type: ignore[arg-type]


def newest_key(pair: Pair) -> RelayKey:
    from secemb_server1.relay_keys import RelayKeys

    keys = RelayKeys(pair.folder / "server1" / "relay-keys.json", IDENTITY, pair.task.task_id)
    return keys.held()[-1].announced


async def test_a_server_0_that_tells_devices_another_round_is_refused_by_server_1() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        told = round_of(pair, model_digest=bytes(32))

        def passed_on(frame: Frame) -> Frame:
            seeds = bytes(24) + bytes(16) + frame.rest[sealed_bytes(Kind.KEYS) :]
            content = box_content(told, Kind.KEYS, seeds)
            message = encode_relayed(told, frame.session_id, Kind.RELAYED_KEYS, seeds, content, newest_key(pair))
            split = split_relayed(told, frame.session_id, Kind.RELAYED_KEYS, message)
            return replace(frame, rest=split.sealed + split.public)

        pair.line.tamper = each(only(Kind.KEYS, passed_on))
        assert isinstance(await phone.contribute(), NotNow)
        assert refusals(pair, 1)["relay-round"] >= 1


# What the device notices.


def without_receipt(answer: Answer) -> Answer:
    return replace(answer, body=answer.body[:-32] + bytes(16) + answer.body[-16:])


@pytest.mark.parametrize("claimed", ["", "00" * 16, None, 7])
async def test_a_receipt_that_server_0_claims_is_none(claimed: object) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]

        def alter(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith("relayed-update"):
                return answer
            own = hashlib.sha256(b"whatever").hexdigest() if answer.status != 200 else json.loads(answer.body)["sha256"]
            return Answer(status=200, headers={}, body=json.dumps({"sha256": own, "receipt": claimed}).encode())

        phones[0].alter = alter
        assert isinstance(await phones[0].contribute(), NotNow)
        await comes_back(pair, phones)


async def test_keys_without_server_1s_receipt_are_sent_again() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].alter = lambda request, answer: (
            without_receipt(answer) if request.path.endswith("relayed-keys") else answer
        )
        assert isinstance(await phones[0].contribute(), NotNow)
        assert phones[0].model.trained == 0
        await comes_back(pair, phones)


@pytest.mark.parametrize("fault", ["own rows", "server 1's rows", "stale"])
async def test_wrong_rows_show_in_the_tag_and_the_device_uploads_zeros(fault: str) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].log({5: 1.0, 6: 1.0})  # so that no answer is right by chance
        if fault == "stale":
            await phones[1].contribute()  # prepares the round
            evaluation = await pair.parties[0]._evaluation(round_of(pair).digest)
            evaluation.tagged[:] = np.random.default_rng(1).integers(0, 2**32, evaluation.tagged.shape, np.uint32)
        elif fault == "server 1's rows":
            pair.line.tamper_reply = lambda data: data if len(data) < 100 else data[:9] + flipped(data[9:])
        else:
            phones[0].alter = lambda request, answer: (
                replace(answer, body=answer.body[:24] + flipped(answer.body[24:]))
                if request.path.endswith("relayed-keys")
                else answer
            )
        outcome = await phones[0].contribute()
        assert isinstance(outcome, Contributed)
        assert outcome.trouble == "RowTagError"
        assert phones[0].model.trained == 0


def flipped(data: bytes) -> bytes:
    """Change one bit in every answer of a slot, whichever the device looks at; leave the marks at the end alone."""
    changed = bytearray(data)
    for at in range(0, len(data) - 32, 12):
        changed[at] ^= 1
    return bytes(changed)


async def test_a_dense_part_that_server_1_does_not_publish_is_not_used() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: (
            replace(answer, body=b"\x01" + answer.body[1:]) if "/dense/" in request.path else answer
        )
        outcome = await phone.contribute()
        assert isinstance(outcome, Contributed)
        assert outcome.trouble == "CopyError"
        assert phone.model.trained == 0


@pytest.mark.parametrize("fault", ["another identity", "another task", "one bit", "too short", "not base64"])
async def test_a_relay_key_that_server_1_has_not_signed_is_not_used(fault: str) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        key = RelayKey(
            public=X25519PrivateKey.generate().public_key().public_bytes_raw(), not_before=0, not_after=2**40
        )
        good = key.announce(IDENTITY, pair.task.task_id)
        shown = {
            "another identity": key.announce(Ed25519PrivateKey.generate(), pair.task.task_id),
            "another task": key.announce(IDENTITY, bytes(32)),
            "one bit": good[:-1] + bytes([good[-1] ^ 1]),
            "too short": good[:-1],
            "not base64": b"",
        }[fault]
        text = urlsafe_b64encode(shown).decode() if shown else "é"

        def alter(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith("/join"):
                return answer
            return replace(answer, body=json.dumps({**json.loads(answer.body), "relay": text}).encode())

        phone.alter = alter
        with pytest.raises(PinError, match="not signed"):
            await phone.contribute()
        assert not phone.seen.bodies


async def test_an_older_relay_key_than_before_is_not_used() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        for phone in phones:
            await contributed(phone)
        await pair.finish()
        await pair.step()
        key = RelayKey(public=newest_key(pair).public, not_before=newest_key(pair).not_before - 1, not_after=2**40)
        text = urlsafe_b64encode(key.announce(IDENTITY, pair.task.task_id)).decode()

        def alter(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith("/join"):
                return answer
            return replace(answer, body=json.dumps({**json.loads(answer.body), "relay": text}).encode())

        phones[0].alter = alter
        outcome = await phones[0].contribute()
        assert isinstance(outcome, NotNow)
        assert "older relay key" in outcome.reason


# What a relay can do without meaning to.


@pytest.mark.parametrize("moment", range(8))
@pytest.mark.parametrize("fault", ["lose_requests", "lose_responses", "hold_requests"])
async def test_a_line_that_loses_or_delays_changes_nothing(fault: str, moment: int) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        setattr(pair.line, fault, moment)
        await until_contributed(phones)
        while pair.line.held:
            await pair.deliver_held()
        await check_sum(pair, phones)


@pytest.mark.parametrize("cut", [1, 8, 9, 40])
async def test_replies_that_are_cut_are_asked_for_again(cut: int) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        left = [2]

        def truncate(data: bytes) -> bytes:
            left[0] -= 1
            return data[:cut] if left[0] >= 0 else data

        pair.line.tamper_reply = truncate
        for phone in phones:
            await contributed(phone)
        await pair.finish()
        assert pair.parties[0].models.load(1).rows[0, 0] == -1.5


async def test_a_server_1_that_is_busy_says_so_to_the_device() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.parties[1].workers._limit = 0
        outcome = await phones[0].contribute()
        assert isinstance(outcome, NotNow)
        assert refusals(pair, 1)["busy"] >= 1
        pair.parties[1].workers._limit = 50
        await comes_back(pair, phones)


async def test_a_refusal_says_no_more_than_its_name() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        replies: list[bytes] = []
        pair.line.tamper = each(lambda frame: flip(frame, -1))
        pair.line.tamper_reply = noting(replies)
        await phone.contribute()
        for data in replies:
            for reply in ReplyReader().feed(data):
                assert reply.body == Refusal("relay-altered", None)


async def test_server_0_cannot_read_the_rows_that_pass_through_it() -> None:
    async with a_pair(**LONG, initial_scale="1") as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        replies: list[bytes] = []
        pair.line.tamper_reply = noting(replies)
        passed: list[bytes] = []

        def keep(request: Request, answer: Answer) -> Answer:
            if request.path.endswith("relayed-keys"):
                passed.append(answer.body)
            return answer

        phones[0].alter = keep
        await contributed(phones[0])
        rows = pair.parties[0].models.load(0).rows
        numbers = set(rows.view(np.uint32).reshape(-1).tolist()) - {0}
        for data in (*replies, *passed):
            for start in range(4):
                words = np.frombuffer(data[start : start + (len(data) - start) // 4 * 4], np.uint32)
                assert not numbers & set(words.tolist())


@pytest.mark.parametrize("transport", ["direct", "relayed"])
async def test_server_0_cannot_upload_in_somebodys_session_by_the_direct_way_either(transport: str) -> None:
    """It makes the tickets, so it has one; an update of its own would show in the sum where the session's items are."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number, options={"transport": transport}) for number in range(2)]
        made_up = Sizes.of(pair.task).update[1]
        answers: list[int] = []

        def race(request: Request, answer: Answer) -> Answer:
            if request.path.endswith("keys") and not answers:
                answers.append(0)
                pending.append(request)
            return answer

        pending: list[Request] = []
        phones[0].alter = race
        phones[0].dies = lambda: bool(pending)  # nothing of its update has left yet
        await phones[0].contribute()
        (keys,) = pending
        pending.clear()
        session, head = bytes.fromhex(keys.path.split("/")[5]), Kind.UPDATE
        body = envelope(round_of(pair), session, head, 1) + bytes(made_up - 24)
        for proof in ("", "00" * 16, "é"):
            path = keys.path.rsplit("/", 1)[0] + "/update"
            headers = [(name.encode(), value.encode()) for name, value in keys.headers.items()]
            headers.append((b"secemb-proof", proof.encode()))
            found = await pair.send(1, httpx.Request("PUT", f"https://server1{path}", headers=headers, content=body))
            assert found is not None
            assert found.json()["type"] == "urn:secemb:problem:relay-altered"
        await comes_back(pair, phones)
