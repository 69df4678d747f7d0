"""Events in a home, and which of them a device brings to a round: order, odd clocks, unknown items, few events."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.devices.last_event import Last
from tests.unit.sessions import make_round, make_task, seeded

from secemb_sdk.context import Context
from secemb_sdk.device import Owned
from secemb_sdk.errors import DamagedError, MisfitError, RatingError
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.export import export_home
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import Traffic
from secemb_sdk.home.records import Keyed, Record, Ticket, decode_events, decode_stage, encode_stage
from secemb_sdk.home.vault import Vault
from secemb_sdk.models import PrivateState
from secemb_sdk.round.measure import measure
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.whole_table import WholeTable
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.measures import WHOLE_TABLE, EventSums, count_strangers
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import EVALUATE, NEXT, SURVEY, TRAIN

TASK = make_task(items=40, row_width=2, dense_size=0, capacity=13, loss=NEXT)
NONE = np.zeros(0, np.float32)


def vault_in(folder: Path) -> Vault:
    vault = Vault(Home(folder, FileCipher(None)))
    vault.bind(TASK.task_id, ("http://one", "http://two"))
    return vault


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def device_in(folder: Path, clock: Clock | None = None, **settings: Any) -> Owned:
    context = Context(vault=vault_in(folder), task_id=TASK.task_id, model=Last(), **settings)
    return Owned(replace(context, wall_clock=clock or Clock()))


def events_of(device: Owned) -> list[int]:
    return [one["item"] for one in device.export()["events"]]


# In the home.


def test_events_are_in_time_order_whatever_the_order_of_logging(tmp_path: Path) -> None:
    device = device_in(tmp_path)
    for item, at in ((1, 30.0), (2, 10.0), (3, 20.0), (2, 40.0)):
        device.log(item=item, at=at)
    assert events_of(device) == [2, 3, 1, 2]  # the same item may be chosen again


def test_events_at_the_same_time_keep_the_order_of_logging(tmp_path: Path) -> None:
    device = device_in(tmp_path)
    device.log_events([(9, 5.0), (1, 5.0), (4, 5.0)])
    device.log(item=0, at=5.0)
    assert events_of(device) == [9, 1, 4, 0]


@pytest.mark.parametrize("jump", [-500.0, 0.0, 500.0])
def test_an_event_without_a_time_is_the_newest_though_the_clock_has_jumped(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    device = device_in(tmp_path, clock)
    device.log(item=1)
    clock.now += jump
    device.log(item=2)
    device.log_events([(3, None), (4, None)])
    assert events_of(device) == [1, 2, 3, 4]


@pytest.mark.parametrize("at", [float("nan"), float("inf"), "noon", [1]])
def test_a_time_that_is_no_number_is_refused_and_nothing_is_stored(tmp_path: Path, at: Any) -> None:
    device = device_in(tmp_path)
    with pytest.raises(RatingError, match="event's time"):
        device.log_events([(1, 5.0), (2, at)])
    assert events_of(device) == []


def test_a_rating_with_a_time_is_refused(tmp_path: Path) -> None:
    device = device_in(tmp_path)
    with pytest.raises(RatingError, match="log them separately"):
        device.log(item=1, rating=3.0, at=5.0)
    assert events_of(device) == []
    assert device.export()["ratings"] == []


def test_events_outlive_a_restart_and_are_forgotten_on_demand(tmp_path: Path) -> None:
    vault = vault_in(tmp_path)
    vault.log_events([(7, 1.0), (8, None)], now=5.0)
    vault.close()
    vault = vault_in(tmp_path)
    assert export_home(vault)["events"] == [{"item": 7, "at": 1.0}, {"item": 8, "at": 5.0}]
    vault.forget()
    assert export_home(vault)["events"] == []
    vault.close()
    assert vault_in(tmp_path).events().items.size == 0


def test_events_of_unequal_length_are_damage() -> None:
    with pytest.raises(DamagedError, match="events"):
        decode_events(Record({}, {"items": bytes(16), "times": bytes(8)}))


# In a round.


def selected(folder: Path, kind: str, events: list[int], *, task: TaskSpec = TASK, **settings: Any) -> Selection:
    """Return what a device that has logged these events brings to a round."""
    vault = vault_in(folder)
    vault.log_events([(item, float(place)) for place, item in enumerate(events)], now=0.0)
    context = Context(vault=vault, task_id=TASK.task_id, model=Last(), **settings)
    return context.select(replace(make_round(task), kind=kind), seeded(1))


def own_of(found: Selection) -> list[int]:
    assert found.window is not None
    items: list[int] = found.items[found.window.events].tolist()
    return items


def test_training_never_sees_the_newest_event_and_counts_what_does_not_fit(tmp_path: Path) -> None:
    found = selected(tmp_path, TRAIN, [*range(10), 39])
    own = own_of(found)
    assert len(own) == 5
    assert own == list(range(own[0], own[0] + 5))
    assert found.left_out == 10 - 5  # the one that is held out is not left out: it is measured
    assert not found.held_out.any()
    assert found.items.size <= TASK.capacity


def test_a_device_without_hold_out_trains_on_all_events_and_measures_nothing(tmp_path: Path) -> None:
    assert own_of(selected(tmp_path / "one", TRAIN, [1, 2, 3], hold_out=0.0)) == [1, 2, 3]
    assert selected(tmp_path / "two", EVALUATE, [1, 2, 3], hold_out=0.0).items.size == 0


def test_an_evaluation_holds_the_newest_event_strangers_and_the_events_before(tmp_path: Path) -> None:
    found = selected(tmp_path, EVALUATE, [5, 6, 7, 8, 9, 11])
    strangers = np.isnan(found.values)
    assert found.items[found.held_out].tolist() == [11]
    assert own_of(found) == [6, 7, 8, 9]
    assert np.count_nonzero(strangers) == count_strangers(TASK.capacity)
    assert not set(found.items[strangers].tolist()) & {5, 6, 7, 8, 9, 11}
    assert found.items.size <= TASK.capacity


def test_an_event_that_repeats_the_held_out_one_is_still_followed(tmp_path: Path) -> None:
    found = selected(tmp_path, EVALUATE, [5, 6, 5])
    assert own_of(found) == [5, 6]
    assert found.items[found.held_out].tolist() == [5]


@pytest.mark.parametrize(("events", "trains", "measures"), [([], 0, 0), ([3], 0, 0), ([3, 4], 0, 6), ([3, 4, 5], 2, 7)])
def test_few_events_are_never_an_error(tmp_path: Path, events: list[int], trains: int, measures: int) -> None:
    assert len(own_of(selected(tmp_path / "one", TRAIN, events))) == trains
    assert selected(tmp_path / "two", EVALUATE, events).items.size == measures
    assert selected(tmp_path / "three", SURVEY, events).items.size == len(events)


@pytest.mark.parametrize("kind", [TRAIN, SURVEY, EVALUATE])
def test_events_of_unknown_items_are_left_out_and_counted(tmp_path: Path, kind: str) -> None:
    found = selected(tmp_path, kind, [1, 40, 2, 99, 3, 4, 10**6])
    assert found.items.max() < TASK.items
    assert found.left_out == 3
    if kind == EVALUATE:
        assert found.items[found.held_out].tolist() == [4]  # the newest that there is a row for


def test_a_model_of_ratings_does_not_fit_a_task_of_events_nor_the_other_way_round(tmp_path: Path) -> None:
    vault = vault_in(tmp_path)
    for model, loss in ((None, NEXT), (Last(), "bpr"), (Last(), "squared")):
        context = Context(vault=vault, task_id=TASK.task_id, model=model)
        with pytest.raises(MisfitError, match="time order"):
            context.model_for(replace(TASK, loss=loss))
    assert Context(vault=vault, task_id=TASK.task_id, model=Last()).model_for(TASK).private_size == 1


def measured(folder: Path, task: TaskSpec, events: list[int], *, whole: bool) -> EventSums:
    """Return what a device measures; a row is the item's number, and its bias."""
    found = selected(folder, EVALUATE, events, task=task)
    table = np.stack([np.arange(task.items), np.arange(task.items) % 7], axis=1).astype(np.float32)
    state = PrivateState.begin(Last(), np.random.default_rng(1))
    items = np.random.default_rng(2).permutation(found.items)
    every = WholeTable(rows=table, chosen=np.unique(events), seed=5) if whole else None
    numbers = measure(task, Last(), state, found, items, table[items], NONE, every)
    return EventSums.read(numbers.tolist())


def test_an_evaluation_ranks_the_newest_event_in_the_whole_catalogue_by_the_events_before_it(tmp_path: Path) -> None:
    sums = measured(tmp_path, TASK, [5, 6, 8], whole=True)
    place = 3  # 8 is two away from 6, the last event before it; 4 and 7 are no further, and 5 and 6 are known
    assert sums.rankings == 1.0
    assert sums.whole_reciprocal == pytest.approx(1 / place)
    assert sums.reciprocal == sums.whole_reciprocal  # there are 37 strangers, and all are drawn
    assert sums.whole_ndcg == pytest.approx(1 / np.log2(place + 1))
    assert sums.whole_ndcg_2 == pytest.approx(sums.whole_ndcg**2)
    near = -np.abs(np.arange(TASK.items) - 6.0)
    assert sums.surprise == pytest.approx(np.log(np.exp(near).sum()) - near[8], rel=1e-5)
    by_bias = np.delete(np.arange(TASK.items) % 7, [5, 6, 8])
    assert sums.popular_whole_reciprocal == pytest.approx(1 / (1 + np.count_nonzero(by_bias >= 8 % 7)))


def test_a_device_that_could_not_fetch_the_table_ranks_nothing(tmp_path: Path) -> None:
    assert not measured(tmp_path, TASK, [5, 6, 8], whole=False).numbers().any()


def test_where_the_table_is_too_large_the_newest_event_is_ranked_among_what_the_session_reads(tmp_path: Path) -> None:
    task = replace(TASK, items=WHOLE_TABLE // (4 * TASK.row_width) + 1)
    assert (TASK.ranks_whole_table, task.ranks_whole_table) == (True, False)
    assert (TASK.strangers, task.strangers) == (100, count_strangers(TASK.capacity))
    sums = measured(tmp_path, task, [5, 6, 7], whole=False)
    assert (sums.rankings, sums.whole_hits) == (1.0, 0.0)
    assert sums.reciprocal == 1.0  # strangers are millions away


def test_with_noise_a_device_does_not_send_how_surprised_it_is(tmp_path: Path) -> None:
    line = BudgetLine(clip=2**16, multiplier="1", epsilon="1")
    noisy = replace(TASK, privacy=Privacy(unit="user", delta="0.000001", train=line, evaluate=line))
    sums = measured(tmp_path, noisy, [5, 6, 8], whole=True)
    assert (sums.surprise, sums.surprise_2, sums.whole_ndcg_2) == (0.0, 0.0, 0.0)
    assert sums.whole_hits == 1.0


def test_a_session_that_is_read_again_from_the_home_has_its_window(tmp_path: Path) -> None:
    found = selected(tmp_path, TRAIN, [1, 2, 3, 2, 5])
    ticket = Ticket(round=b"{}", ticket="", truncated=0, traffic=Traffic(), receipts=0, transport="direct")
    keyed = Keyed(ticket=ticket, seed=bytes(32), selection=found, keys_digest=bytes(32))
    again = decode_stage(Record.decode(encode_stage(keyed).encode()))
    assert isinstance(again, Keyed)
    assert own_of(again.selection) == own_of(found)
    before, after = found.window, again.selection.window
    assert before is not None
    assert after is not None
    assert (after.seed, after.strangers.tolist()) == (before.seed, before.strangers.tolist())
