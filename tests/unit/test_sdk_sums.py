"""Numbers of a survey or an evaluation: they add up, they are uploaded once, and training sessions draw as before."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sessions import ids, make_round, make_task, seeded

from secemb_lab.party_round import PartyRound
from secemb_party.evaluation import Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared.errors import NotFiniteError, OutOfRangeError, PathSpentError, SpecError
from secemb_shared.messages.spec import EVALUATE, SUM_SIZES, SURVEY, TRAIN, RoundSpec
from secemb_shared.secure_sum import SUM_RING

SIZE = SUM_SIZES[SURVEY]


def round_of(kind: str) -> RoundSpec:
    return replace(make_round(make_task()), kind=kind)


def total(round_: RoundSpec, sessions: list[DeviceSession]) -> Share:
    table = np.zeros((round_.task.items, round_.task.row_width), dtype=np.float32)
    shares = []
    for party in (0, 1):
        one = PartyRound(round_, party, table)
        for session in sessions:
            assert session.update is not None
            one.keys(session.session_id, session.keys[party])
            one.update(session.session_id, session.update[party])
        shares.append(one.share(one.complete()))
    return shares[0] + shares[1]


@pytest.mark.parametrize(("kind", "size"), [(SURVEY, 14), (EVALUATE, 22)])
def test_the_numbers_of_all_devices_add_up(kind: str, size: int) -> None:
    round_, values = round_of(kind), [np.arange(size) + 0.5 * number for number in range(4)]
    sessions = [DeviceSession(round_, ids(1, 2)) for _ in values]
    for session, numbers in zip(sessions, values, strict=True):
        session.write_sums(numbers)
    assert SUM_RING.decode(total(round_, sessions).sums).tolist() == np.sum(values, axis=0).tolist()


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
def test_a_device_with_nothing_to_say_adds_zeros(kind: str) -> None:
    round_ = round_of(kind)
    sessions = [DeviceSession(round_, ids(1, 2)) for _ in range(2)]
    for session in sessions:
        session.write_nothing()
    assert not total(round_, sessions).sums.any()


@pytest.mark.parametrize("first", ["write_nothing", "write_sums"])
@pytest.mark.parametrize("second", ["write_nothing", "write_sums", "write"])
def test_a_session_uploads_once(first: str, second: str) -> None:
    session = DeviceSession(round_of(SURVEY), ids(1))
    arguments = {
        "write_nothing": (),
        "write_sums": (np.full(SIZE, 2.0),),
        "write": (ids(1), np.ones((1, session.round.task.row_width))),
    }
    messages = getattr(session, first)(*arguments[first])
    with pytest.raises(PathSpentError):
        getattr(session, second)(*arguments[second])
    assert session.update == messages


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (np.full(SIZE, np.nan), NotFiniteError),
        (np.full(SIZE, 1e9), OutOfRangeError),
        (np.ones(SIZE + 1), SpecError),
        (np.array([]), SpecError),
        (np.array(1.0), SpecError),
    ],
)
def test_numbers_that_cannot_be_are_refused_before_the_path_is_spent(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], error: type[Exception]
) -> None:
    session = DeviceSession(round_of(SURVEY), ids(1))
    with pytest.raises(error):
        session.write_sums(values)
    session.write_sums(np.full(SIZE, 3.0))


def test_a_training_round_has_no_numbers_to_add() -> None:
    session = DeviceSession(round_of(TRAIN), ids(1))
    with pytest.raises(SpecError, match="sums 0 numbers"):
        session.write_sums(np.zeros(0))
    session.write_nothing()


def test_the_same_random_bytes_give_the_same_messages() -> None:
    pairs = []
    for _ in range(2):
        session = DeviceSession(round_of(EVALUATE), ids(3, 4), random_bytes=seeded(5))
        pairs.append((session.keys, session.write_sums(np.arange(22.0))))
    assert pairs[0] == pairs[1]


def test_the_seed_of_a_sum_is_drawn_last_so_that_training_sessions_draw_as_before() -> None:
    drawn: dict[str, list[int]] = {}
    for kind in (TRAIN, SURVEY):
        lengths: list[int] = []
        source = seeded(6)

        def random_bytes(count: int, lengths: list[int] = lengths, source=source) -> bytes:  # type: ignore[no-untyped-def]
            lengths.append(count)
            return bytes(source(count))

        DeviceSession(round_of(kind), ids(1), random_bytes=random_bytes).write_nothing()
        drawn[kind] = lengths
    assert drawn[SURVEY] == [*drawn[TRAIN], 16]
