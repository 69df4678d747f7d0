"""The demonstration's report: what it says first, the baselines beside the model, and the picture of the shares."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.vault import Vault
from secemb_sdk.round.selection import HoldOut
from secemb_tools import simulate
from secemb_tools.demo.evidence import Corner, ServerView, Traffic
from secemb_tools.demo.person import Person, Suggestion
from secemb_tools.demo.report import draw, render_report
from secemb_tools.demo.result import Baselines, DemoResult, baselines_of, held_out_of, quality_words
from secemb_tools.local.rounds import RoundRecord
from secemb_tools.simulation.baseline import split_of
from secemb_tools.simulation.scenario import make_world
from secemb_tools.transport import Transport

RANDOM = np.random.default_rng(1)
EVALUATION = 5  # the round that evaluates, after five that train
SMALL: dict[str, Any] = {"devices": 6, "cohort": 3, "rounds": 5, "items": 60}
FOUND = [Suggestion(item="7", title="The <Blue> Ship", genre="Comedy", rating=4.5)]


def corner(*, rows: int = 4, width: int = 3) -> Corner:
    total = np.zeros((rows, width), np.uint32)
    total[1] = 5
    first = RANDOM.integers(0, 2**32, total.shape, dtype=np.uint32)
    return Corner(shares=(first, total - first))


def server(role: int) -> ServerView:
    return ServerView(
        role=role,
        sessions=3,
        messages=6,
        keys_bytes=10,
        update_bytes=10,
        lengths=1,
        repeated=0,
        compressed=1.0,
        share_ones=0.5,
        share_compressed=1.0,
        cpu_seconds=1.0,
    )


def result() -> DemoResult:
    return DemoResult(
        run=simulate(**SMALL),
        rounds=[],
        transport=Transport.DIRECT,
        ratings=(1, 2),
        traffic=Traffic(sent=1, received=1, full_sent=1, full_received=1),
        servers=[server(0), server(1)],
        total=None,
        troubled=0,
        seconds=1.0,
        baselines=Baselines(global_mean=9.0, biases=8.0, ratings=12),
        person=Person(number=3, ratings=20, liked=FOUND, recommended=FOUND),
        corner=corner(),
    )


def test_a_device_holds_out_what_the_baselines_are_measured_on(tmp_path: Path) -> None:
    world = make_world(**SMALL)
    data = held_out_of(world, EVALUATION)
    tested = set(zip(data.test.people.tolist(), data.test.items.tolist(), strict=True))
    trained = set(zip(data.train.people.tolist(), data.train.items.tolist(), strict=True))
    panel = world.schedule.people_of(EVALUATION).tolist()
    for person in range(6):
        home = Home(tmp_path / str(person), FileCipher(None))
        vault = Vault(home, random_bytes=lambda _, person=person: world.hold_out_key_of(person))  # type: ignore[misc]
        vault.bind(world.task.task_id, ("http://127.0.0.1:1", "http://127.0.0.1:2"))
        held = HoldOut(key=vault.hold_out_key, fraction=world.hold_out)
        for item in world.ratings_of(person):
            assert ((person, item) in tested) == (item in held and person in panel)
            assert ((person, item) in trained) == (item not in held)
        vault.close()


def test_baselines_are_measured_on_exactly_what_an_evaluation_has_room_for() -> None:
    settings = SMALL | {"rounds": 15, "capacity": 16}
    world, run = make_world(**settings), simulate(**settings)
    rows = [row for row in run.rows if row.figures]
    assert len(rows) == 3
    for row in rows:
        data = held_out_of(world, row.round)
        assert data.test.values.size == row.figures["predictions"]
        assert np.isclose(row.figures["mean_rmse"], data.test.values.std(), rtol=1e-3)
    held = [np.isin(split_of(world).test.people, world.schedule.people_of(row.round)).sum() for row in rows]
    assert sum(held) > sum(row.figures["predictions"] for row in rows), "these devices hold out more than that"


def test_the_mean_rating_is_measured_on_what_the_panel_holds_out() -> None:
    world = make_world(**SMALL)
    data, found = held_out_of(world, EVALUATION), baselines_of(world)
    assert found is not None
    mean = sum(data.train.values.tolist()) / data.train.values.size
    squares = [(value - mean) ** 2 for value in data.test.values.tolist()]
    assert math.isclose(found.global_mean, math.sqrt(sum(squares) / len(squares)), rel_tol=1e-5)
    assert found.ratings == len(squares)
    assert baselines_of(make_world(**SMALL | {"rounds": 1})) is None, "no round has evaluated"


@pytest.mark.parametrize(
    ("biases", "words"), [(8.0, "better than both"), (0.5, "too few ratings to tell"), (0.001, "needs more rounds")]
)
def test_the_model_is_called_better_only_where_the_interval_says_so(biases: float, words: str) -> None:
    measured = RoundRecord(
        round=5,
        kind="evaluate",
        joined=3,
        retrieved=3,
        uploaded=3,
        matched=3,
        dropped=0,
        seconds=1.0,
        version=5,
        digest="ab",
        digests_equal=True,
        figures={"rmse_low": 0.4, "rmse_high": 0.6},
    )
    made = replace(result(), rounds=[measured], baselines=Baselines(global_mean=9.0, biases=biases, ratings=12))
    assert words in quality_words(made)
    assert "between 0.400 and 0.600" in quality_words(made)
    assert "No round measured" in quality_words(replace(made, baselines=None))


def test_the_report_begins_with_what_it_is_and_that_the_data_are_made_up() -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", render_report(result()))
    places = [
        text.index(words) for words in ("trains a recommender", "are made up", "user and item biases", "Person 3")
    ]
    assert places == sorted(places)
    assert "The &lt;Blue&gt; Ship (Comedy)" in text, "titles are escaped"


def test_the_picture_has_a_square_for_each_number_and_a_zero_is_blank() -> None:
    shown = draw(corner(rows=4, width=3))
    panels = shown.split("<g ")[1:]
    assert [len(re.findall(r"M\d+ \d+h", panel)) for panel in panels] == [12, 12, 3]


def test_a_share_in_the_clear_would_look_like_the_sum() -> None:
    """The picture itself: it is drawn from what the servers hold."""
    zeros = np.zeros((4, 3), np.uint32)
    first, _, total = draw(Corner(shares=(zeros, zeros))).split("<g ")[1:]
    assert "<path" not in first
    assert "<path" not in total
