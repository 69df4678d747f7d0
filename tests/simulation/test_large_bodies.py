"""Shares and models go between the servers in pieces: what was cut goes on, and what was altered is refused."""

from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import assert_published, filled, last, step_to

from secemb_party.errors import PeerRefusedError
from secemb_party.ledger import RoundState
from secemb_party.storage import Model
from secemb_party.storage.publication import ModelNumbers, publication

pytestmark = pytest.mark.asyncio
PIECE, ITEMS = 512, 600  # a share has ten pieces
SHARE, MODEL = "share", "models"
Change = Callable[[str, int, bytes], bytes]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("secemb_server0.transfer", "secemb_server1.responder"):
        monkeypatch.setattr(f"{module}.PIECE", PIECE)


@dataclass
class Pieces:
    """The pieces on the line to server 1, and what becomes of their bytes."""

    calls: list[tuple[str, int]] = field(default_factory=list)  # of what, and from which byte on
    change: Change = lambda _kind, _first, piece: piece

    def starts(self, kind: str) -> list[int]:
        """Return from which bytes on there were pieces."""
        return [first for what, first in self.calls if what == kind]


async def watch(pair: Pair) -> Pieces:
    """Return what is seen of the pieces from now on."""
    pieces, deliver = Pieces(), pair.deliver

    async def noted(request: httpx.Request) -> httpx.Response:
        path = request.url.path.split("/")
        if not path[-1].isdecimal():
            return await deliver(request)
        kind, first = MODEL if MODEL in path else SHARE, int(path[-1])
        pieces.calls.append((kind, first))
        if kind == SHARE:
            answer = await deliver(request)
            return httpx.Response(200, content=pieces.change(kind, first, answer.content), headers=answer.headers)
        body = pieces.change(kind, first, await request.aread())
        return await deliver(httpx.Request("PUT", request.url, content=body, headers=request.headers))

    pair.deliver = noted  # type: ignore[method-assign]
    await pair.start_server(0)
    return pieces


@pytest.mark.parametrize("crash", [False, True])
async def test_a_share_that_is_cut_in_the_middle_goes_on_where_it_ended(crash: bool) -> None:
    async with a_pair(items=ITEMS) as pair:
        pieces = await watch(pair)
        devices = await filled(pair)
        await step_to(pair, RoundState.SHARED)
        pair.line.let_pass, pair.line.lose_responses = 4, 1  # the call for it, three pieces, and the next one is lost
        assert await pair.step() is None
        if crash:
            await pair.crash(0)
        await pair.finish()
        await assert_published(pair, devices)
        assert pieces.starts(SHARE) == [0, 512, 1024, 1536, *range(1536, 4 * (2 * ITEMS + 2), 512)]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_model_that_is_cut_in_the_middle_goes_on_where_it_ended(crash: bool) -> None:
    async with a_pair(items=ITEMS, optimiser="adam", row_decay="1", initial_scale="1", bound=2**4) as pair:
        pieces = await watch(pair)
        await filled(pair)
        await step_to(pair, RoundState.RECONSTRUCTED)
        pair.line.let_pass, pair.line.lose_responses = 3, 1  # the answer to the third piece is lost, but not the piece
        assert await pair.step() is None
        if crash:
            await pair.crash(1)
        await pair.finish()
        assert pieces.starts(MODEL) == [*range(0, 4 * (2 * ITEMS + 2), 512)]
        assert pair.parties[1].models.load(1).digest == pair.parties[0].models.load(1).digest


async def altered(kind: str, state: RoundState) -> None:
    async with a_pair(items=ITEMS, row_decay="0.5", initial_scale="1") as pair:
        pieces = await watch(pair)
        await filled(pair)
        await step_to(pair, state)
        pieces.change = lambda what, first, piece: (
            bytes([piece[0] ^ 1]) + piece[1:] if (what, first) == (kind, 1024) else piece
        )
        with pytest.raises(PeerRefusedError, match="damaged in transit"):
            await pair.step()
        assert (await last(pair, 0)).state is state
        pieces.change = lambda _kind, _first, piece: piece
        await pair.finish()
        assert pieces.starts(kind).count(0) == 1  # what had arrived intact was kept
        assert pair.parties[1].models.load(1).digest == pair.parties[0].models.load(1).digest


async def test_an_altered_piece_of_a_share_is_refused() -> None:
    await altered(SHARE, RoundState.SHARED)


async def test_an_altered_piece_of_a_model_is_refused() -> None:
    await altered(MODEL, RoundState.RECONSTRUCTED)


async def test_server_1_gets_only_the_rows_that_changed_and_has_the_same_model() -> None:
    async with a_pair(items=ITEMS, optimiser="lazy-adam", initial_scale="1", bound=2**4) as pair:
        pieces = await watch(pair)
        for number in range(2):
            await pair.step()
            for place in range(3):
                await a_device(pair, place, name=bytes([number, place]) * 8).take_part()
            await pair.finish()
        models = [[pair.parties[role].models.load(version) for version in range(3)] for role in (0, 1)]
        assert [one.digest for one in models[0]] == [one.digest for one in models[1]]
        for before, after in zip(models[0], models[0][1:], strict=False):
            assert 0 < (before.rows != after.rows).any(axis=1).sum() <= 16
        assert pieces.starts(MODEL) == [0, 0]  # one piece each: the whole model would be ten


async def test_all_numbers_are_sent_if_they_are_shorter_than_the_changes() -> None:
    async with a_pair(items=8, bins=2) as pair:
        old = pair.parties[0].models.load(0)
        new = Model(task_id=old.task_id, version=1, rows=old.rows + 1, dense=old.dense)
        sent = publication(new, old, pair.folder)
        assert not sent.changes
        assert sent.body.size == ModelNumbers(new).size
