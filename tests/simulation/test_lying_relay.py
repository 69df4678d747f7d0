"""A server 0 that answers devices wrongly: the device notices, and no rows can be read on the way."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from tests.devices.phone import Phone, a_phone, contributed, noticed
from tests.simulation.faulty_compute import FaultyRound
from tests.simulation.pair import Pair, a_pair
from tests.simulation.tampering import LONG, comes_back, noting

from secemb_party.compute.threads import ThreadRound
from secemb_party.evaluation import Evaluation, WholeTable
from secemb_sdk.round.contribute import Contributed, NotNow
from secemb_sdk.steps import Answer, Request

pytestmark = pytest.mark.asyncio


def without_receipt(answer: Answer) -> Answer:
    return replace(answer, body=answer.body[:-32] + bytes(16) + answer.body[-16:])


@pytest.mark.parametrize("claimed", ["", "00" * 16, None, 7, "\ud800"])
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
        assert await reason_of(phones[0]) == "server 0 did not return server 1's receipt for the update"
        assert noticed(phones[0]) == {"receipt"}
        await comes_back(pair, phones)


async def test_an_update_that_server_0_does_not_show_to_hold_is_sent_again() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].alter = lambda request, answer: (
            replace(answer, body=answer.body.replace(b"sha256", b"sha512"))
            if request.path.endswith("relayed-update")
            else answer
        )
        assert await reason_of(phones[0]) == "server 0 did not acknowledge the update"
        assert noticed(phones[0]) == {"receipt"}
        await comes_back(pair, phones)


KEYS = {
    "no receipt": (without_receipt, "server 0 did not return server 1's receipt for the keys"),
    "no answer": (
        lambda answer: replace(answer, body=answer.body[:-1]),
        "this app cannot read server 0's response to the keys",
    ),
}


@pytest.mark.parametrize("fault", KEYS)
async def test_keys_without_server_1s_receipt_are_sent_again(fault: str) -> None:
    change, words = KEYS[fault]
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].alter = lambda request, answer: change(answer) if request.path.endswith("relayed-keys") else answer
        assert await reason_of(phones[0]) == words
        assert noticed(phones[0]) == {"receipt"}
        assert phones[0].model.trained == 0
        await comes_back(pair, phones)


@pytest.mark.parametrize("fault", ["own rows", "server 1's rows"])
async def test_wrong_rows_show_in_the_tag_and_the_device_uploads_zeros(fault: str) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].log({5: 1.0, 6: 1.0})  # so that no answer is right by chance
        if fault == "server 1's rows":
            pair.line.tamper_reply = lambda data: data if len(data) < 100 else data[:9] + flipped(data[9:])
        else:
            phones[0].alter = lambda request, answer: (
                replace(answer, body=answer.body[:24] + flipped(answer.body[24:]))
                if request.path.endswith("relayed-keys")
                else answer
            )
        await uploads_zeros(phones[0])
        assert phones[0].model.trained == 0


async def test_rows_of_the_version_before_show_in_the_tag() -> None:
    """They are rows that server 0 has published itself, with tags that were right a round ago."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        for phone in phones:
            await contributed(phone)
        before = (await current_evaluation(pair)).slots
        await pair.finish()
        await pair.step()
        now = (await current_evaluation(pair)).slots
        assert isinstance(before, WholeTable)
        assert isinstance(now, WholeTable)
        now.tagged[:] = before.tagged
        phones[0].log({5: 1.0, 6: 1.0})
        await uploads_zeros(phones[0])
        assert phones[0].model.trained == 1  # in the round before


async def current_evaluation(pair: Pair) -> Evaluation:
    """Return what server 0 answers from in the round that is open."""
    record = await pair.parties[0].ledger.current_round(pair.task.task_id)
    assert record is not None
    prepared = await pair.parties[0].prepared(record.round_id)
    assert isinstance(prepared, FaultyRound)
    assert isinstance(prepared.inner, ThreadRound)
    return prepared.inner.evaluation


async def reason_of(phone: Phone) -> str:
    """Let a device try in vain; return what it tells its owner."""
    outcome = await phone.contribute()
    assert isinstance(outcome, NotNow)
    return outcome.reason


async def uploads_zeros(phone: Phone) -> None:
    outcome = await phone.contribute()
    assert isinstance(outcome, Contributed)
    assert outcome.trouble == "RowTagError"
    assert noticed(phone) == {"rows"}


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
        assert noticed(phone) == {"dense"}
        assert phone.model.trained == 0


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
