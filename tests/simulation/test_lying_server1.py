"""Whatever server 1 answers, server 0 stays up: it refuses, says so, and opens nothing."""

from typing import Any

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import last

from secemb_party.errors import PeerRefusedError
from secemb_party.ledger import RoundState
from secemb_party.storage import Blob, MemoryBlob, read_all
from secemb_server0.peer import HttpPeer

pytestmark = pytest.mark.asyncio


async def ready_to_seal(pair: Pair) -> None:
    await pair.step()
    for number in range(3):
        await a_device(pair, number).take_part()
    pair.clock.now += pair.task.join_seconds


async def _steps(pair: Pair) -> None:
    for _ in range(8):
        await pair.step()


async def refused_in(pair: Pair, state: RoundState) -> None:
    """Drive the leader until it refuses, and see in which state its round is left."""
    with pytest.raises(PeerRefusedError):
        await _steps(pair)
    record = await pair.parties[0].ledger.current_round(pair.task.task_id)
    assert record is not None
    assert record.state is state


@pytest.mark.parametrize("change", ["twice", "unsorted", "stranger", "a stranger rejected", "both"])
async def test_a_list_that_is_none_is_not_sealed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = HttpPeer.prepare

    async def prepare(self: HttpPeer, *given: Any) -> tuple[list[bytes], list[bytes]]:
        names, rejected = await honest(self, *given)
        lists = {"twice": [names[0], *names], "unsorted": names[::-1], "stranger": [*names, b"\xff" * 16]}
        lies = {"a stranger rejected": (names, [b"\xff" * 16]), "both": (names, names)}
        return lies.get(change) or (lists[change], rejected)

    async with a_pair() as pair:
        await ready_to_seal(pair)
        with monkeypatch.context() as patch:
            patch.setattr(HttpPeer, "prepare", prepare)
            await refused_in(pair, RoundState.SEALING)
        await pair.finish()
        assert pair.parties[0].models.versions() == pair.parties[1].models.versions() == [0, 1]


@pytest.mark.parametrize("spoil", [lambda share: share[:-1], lambda share: share + b"\0", lambda _: b""])
async def test_a_share_of_another_length_is_refused(spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = HttpPeer.share

    async def share(self: HttpPeer, *given: Any) -> Blob:
        return MemoryBlob(spoil(read_all(await honest(self, *given))))

    async with a_pair() as pair:
        await ready_to_seal(pair)
        with monkeypatch.context() as patch:
            patch.setattr(HttpPeer, "share", share)
            await refused_in(pair, RoundState.SHARED)
        await pair.finish()
        assert pair.parties[0].models.versions() == pair.parties[1].models.versions() == [0, 1]


async def test_a_sum_that_is_no_gradient_is_discarded_and_the_task_goes_on() -> None:
    """In a ring of 64 bits without a fraction a hostile share can make a sum whose norm nobody can compute with."""
    async with a_pair(ring_bits=64, bound=2**40, items=64, row_width=64) as pair:
        await ready_to_seal(pair)
        shares = pair.parties[1]._shares
        honest = shares.save

        def hostile(round_id: bytes, listed: bytes, data: bytes | memoryview) -> bytes | None:
            return honest(round_id, listed, b"\xff\xff\xff\xff\xff\xff\xff\x7f" * (len(data) // 8))

        shares.save = hostile  # type: ignore[method-assign,assignment]
        await pair.finish()
        for role in (0, 1):
            assert (await last(pair, role)).state is RoundState.DISCARDED
            assert pair.parties[role].models.versions() == [0]
        del shares.save
        for number in range(3, 6):
            await pair.step()
            await a_device(pair, number).take_part()
        await pair.finish()
        for role in (0, 1):
            assert (await last(pair, role)).state is RoundState.PUBLISHED
            assert pair.parties[role].models.versions() == [0, 1]
        assert pair.parties[1].models.load(1).rows.any()
