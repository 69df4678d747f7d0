"""What a device counts: everything that moved, also where it was in vain, in the receipt and against the budget."""

from collections.abc import Callable

import pytest
from tests.devices.phone import a_phone, contributed, puts
from tests.simulation.pair import RELAYED, a_pair
from tests.simulation.tampering import LONG

from secemb_sdk.context import Policy, round_bytes
from secemb_sdk.errors import PinError
from secemb_sdk.round.contribute import Dropped
from secemb_sdk.steps import Answer, Lost, Request
from secemb_shared.messages import Sizes

pytestmark = pytest.mark.asyncio


def cut_keys(*, times: int, keep: int) -> Callable[[Request, Answer], Answer | Lost]:
    """Return what a line does that lets only the beginning of some answers to keys through."""
    left = [times]

    def alter(request: Request, answer: Answer) -> Answer | Lost:
        if not request.path.endswith("keys") or not left[0]:
            return answer
        left[0] -= 1
        return Lost("cut", sent=len(request.body), received=keep)

    return alter


@pytest.mark.parametrize("relayed", [False, True])
async def test_what_came_of_a_cut_answer_is_in_the_receipt(relayed: bool) -> None:
    async with a_pair(**(RELAYED if relayed else {})) as pair:
        await pair.step()
        usual = await contributed(a_phone(pair, 0))
        cut = await contributed(a_phone(pair, 1, alter=cut_keys(times=3 if relayed else 2, keep=7)))
        assert cut.received == (usual.received[0] + (21 if relayed else 7), usual.received[1] + (0 if relayed else 7))
        assert cut.sent > usual.sent


async def test_a_request_that_did_not_leave_is_not_in_the_receipt() -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        usual = await contributed(a_phone(pair, 0))
        phone, refusals = a_phone(pair, 1), [Lost("nobody at home", sent=0)] * 3
        honest = phone.alter
        phone.alter = lambda request, answer: (
            refusals.pop() if refusals and request.path.endswith("keys") else honest(request, answer)
        )
        receipt = await contributed(phone)
        assert (receipt.sent, receipt.received) == (usual.sent, usual.received)


async def test_answers_that_are_cut_again_and_again_use_up_the_budget() -> None:
    async with a_pair(**LONG | {"upload_seconds": 100_000, "join_seconds": 3600}) as pair:
        await pair.step()
        sizes, needed = Sizes.of(pair.task), round_bytes(pair.task, relayed=True)
        policy = Policy(pace_seconds=0.0, seconds=50_000.0, bytes=4 * needed)
        alter = cut_keys(times=10**6, keep=sizes.relayed_download - 1)
        phone = a_phone(pair, 0, alter=alter, options={"policy": policy})
        assert isinstance(await phone.contribute(), Dropped)
        sent = puts(phone).count((0, "relayed-keys"))
        receipt = phone.open().vault.receipts()[-1]
        assert receipt.received[0] >= sent * (sizes.relayed_download - 1)
        assert sum(receipt.sent) + sum(receipt.received) <= 4 * needed + sizes.relayed_download


async def test_keys_that_one_server_had_when_the_other_showed_a_wrong_pin_are_counted() -> None:
    """Of the other nobody says whether it got a byte; the count is rather too high than too low."""

    def alter(request: Request, answer: Answer) -> Answer:
        if request.server == 1 and request.path.endswith("keys"):
            raise PinError("another key; nothing was sent")
        return answer

    async with a_pair() as pair:
        await pair.step()
        usual, phone = await contributed(a_phone(pair, 0)), a_phone(pair, 1, alter=alter)
        with pytest.raises(PinError):
            await phone.contribute()
        phone.alter = lambda _request, answer: answer
        receipt, keys = await contributed(phone), Sizes.of(pair.task).keys
        assert [more - less for more, less in zip(receipt.sent, usual.sent, strict=True)] == [keys, keys]


async def test_repeats_do_not_overrun_the_budget() -> None:
    async with a_pair(upload_seconds=3600, join_seconds=3600) as pair:
        await pair.step()
        most = round_bytes(pair.task)
        policy = Policy(pace_seconds=0.0, seconds=3000.0, bytes=most)
        phone = a_phone(pair, 0, options={"policy": policy})
        phone.alter = lambda request, answer: Answer(status=503) if request.path.endswith("/keys") else answer
        assert isinstance(await phone.contribute(), Dropped)
        receipt = phone.open().vault.receipts()[-1]
        assert sum(receipt.sent) + sum(receipt.received) <= most
