"""A device's memory and bytes grow with the logarithm of the catalogue and no faster."""

import tracemalloc

import numpy as np
import pytest
from tests.unit.sessions import make_round, planned

from secemb_lab.party_round import PartyRound
from secemb_sdk.context import round_bytes
from secemb_sdk.models import Floats, MatrixFactorisation, PrivateState, Ratings, fit_bound, learn
from secemb_sdk.round.selection import HoldOut, select
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec, Sizes
from secemb_shared.messages.spec import EVALUATE
from secemb_shared.randomness import Indices, secure_bytes

CATALOGUES = [10**4, 10**5, 10**6]
CAPACITY, WIDTH = 100, 9


def round_of(items: int) -> RoundSpec:
    return make_round(
        planned(items=items, capacity=CAPACITY, row_width=WIDTH, dense_size=0, fraction_bits=16, bound=2**22)
    )


def ratings_of(round_: RoundSpec) -> dict[int, float]:
    return dict.fromkeys(range(0, round_.task.items, round_.task.items // CAPACITY), 4.0)


def peak_of_a_session(round_: RoundSpec) -> int:
    """Return the most bytes that a device holds while it goes through a round; the servers' bytes are not counted."""
    table = np.random.default_rng(1).standard_normal((round_.task.items, WIDTH), dtype=np.float32)
    servers, ratings = [PartyRound(round_, party, table) for party in (0, 1)], ratings_of(round_)
    _ = round_.leaf_table
    spec = RoundSpec.decode(round_.encode(), round_.task)  # as a device has it, with nothing prepared
    tracemalloc.start()
    try:
        selection = select(spec, ratings, HoldOut(key=bytes(32), fraction=0.1), secure_bytes)
        session = DeviceSession(spec, selection.items)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        answers = [server.keys(session.session_id, session.keys[party]) for party, server in enumerate(servers)]
        tracemalloc.start()
        items, rows = session.read((answers[0], answers[1]))
        train(session, items, rows, selection.ratings_of(items))
        return peak + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def train(session: DeviceSession, items: Indices, rows: Floats, ratings: Ratings) -> None:
    model = MatrixFactorisation(dimension=WIDTH - 1)
    state = PrivateState.begin(model, np.random.default_rng(2))
    by_row, _, _ = learn(model, state, rows, np.zeros(0, np.float32), ratings, rate=0.1)
    session.write(items, fit_bound(by_row, session.round.task)[0])


def test_memory_grows_with_the_depth_of_the_trees_at_most() -> None:
    peak_of_a_session(round_of(1000))  # what is imported and prepared once
    rounds = [round_of(items) for items in CATALOGUES]
    peaks = [peak_of_a_session(round_) for round_ in rounds]
    for round_, peak in zip(rounds, peaks, strict=True):
        assert peak / peaks[0] <= growth(rounds[0], round_)
    assert peaks[-1] < CATALOGUES[-1] // 4  # far from a byte for each item


def test_bytes_grow_with_the_depth_of_the_trees_at_most() -> None:
    rounds = [round_of(items) for items in CATALOGUES]
    for round_ in rounds:
        sizes, first = Sizes.of(round_.task), Sizes.of(rounds[0].task)
        assert sizes.upload / first.upload <= growth(rounds[0], round_)
        assert sizes.download / first.download <= growth(rounds[0], round_)
        assert round_bytes(round_.task) / round_bytes(rounds[0].task) <= growth(rounds[0], round_)


def test_a_device_that_looked_at_the_whole_catalogue_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = DeviceSession.read

    def read(self: DeviceSession, answers: tuple[bytes, bytes]) -> object:
        _ = self.round.leaf_table
        return honest(self, answers)

    monkeypatch.setattr(DeviceSession, "read", read)
    with pytest.raises(AssertionError):
        test_memory_grows_with_the_depth_of_the_trees_at_most()


@pytest.mark.parametrize("items", CATALOGUES)
def test_an_evaluation_draws_strangers_without_looking_at_the_catalogue(items: int) -> None:
    round_ = RoundSpec.decode(round_of(items).encode().replace(b"train", EVALUATE.encode()), round_of(items).task)
    ratings = ratings_of(round_)
    tracemalloc.start()
    selection = select(round_, ratings, HoldOut(key=bytes(32), fraction=0.5), secure_bytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**5
    assert selection.items.size <= CAPACITY
    assert np.unique(selection.items).size == selection.items.size
    assert 0 < np.isnan(selection.values).sum() <= CAPACITY // 2
    assert not np.isnan(selection.values[0])


def growth(first: RoundSpec, other: RoundSpec) -> float:
    """Return how much larger the trees of a round are: their number times their depth."""
    sizes = [round_.task.geometry.slots * round_.task.geometry.depth for round_ in (first, other)]
    return max(1.0, sizes[1] / sizes[0])
