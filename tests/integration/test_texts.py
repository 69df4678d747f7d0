"""Texts in the simulation: secrecy costs no bit, a grammar is learned, runs are kept, and noise fits in."""

from pathlib import Path
from typing import Any

import pytest

from secemb_sdk.models.torch import LanguageModel
from secemb_sdk.words import Vocabulary, split_words
from secemb_tools import simulate
from secemb_tools.datasets.made_up_texts import make_texts
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.engine import NO_NOISE, Engine
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.scenario import make_world
from secemb_tools.simulation.view import show_run

SMALL: dict[str, Any] = {
    "model": "lm",
    "devices": 24,
    "cohort": 8,
    "rounds": 5,
    "items": 120,
    "capacity": 40,
    "dimension": 4,
    "evaluate_every": 3,
    "patience": 0,
}


def test_a_private_run_is_the_plain_one_to_the_last_bit_with_dropout() -> None:
    run = simulate(**SMALL, compare_plain=True)
    assert run.same_as_plain is True
    assert (run.engines[0].counts.failed, run.engines[0].counts.clipped) == (0, 0)
    assert run.table() == simulate(**SMALL).table()
    assert run.table() != simulate(**SMALL | {"seed": 2}).table()


def test_adapters_run_privately_as_well_and_send_less() -> None:
    model, whole = LanguageModel(dimension=8, adapter_rank=1), LanguageModel(dimension=8)
    run = simulate(**SMALL | {"model": model, "dimension": None}, compare_plain=True)
    assert run.same_as_plain is True
    assert run.engines[0].model.dense.size == model.dense_size < whole.dense_size / 2


def test_a_grammar_is_learned_that_pairs_of_words_do_not_tell(capsys: pytest.CaptureFixture[str]) -> None:
    data = make_texts(people=60, words=30, seed=3)
    model = LanguageModel(dimension=16, length=16, dropout=0.0)
    settings: dict[str, Any] = {"cohort": 30, "rounds": 80, "capacity": 36, "evaluate_every": 81, "way": "plain"}
    run = simulate(model=model, data=data, rate=0.03, dense_rate=0.02, bias_rate=0.03, scale=0.1, **settings)
    assert run.final is not None
    for what in data.unseen:
        found = {name: run.final[f"{name}, {what}"]["perplexity"]["value"] for name in ("model", "bigram", "unigram")}
        assert found["model"] < found["bigram"] < found["unigram"]
    show_run(run)
    shown = capsys.readouterr().out
    assert "perplexity" in shown
    assert "not better" not in shown


def test_a_run_is_kept_with_its_texts_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(row: Any) -> None:
        if row.round == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        simulate(**SMALL, runs=tmp_path, save_every=2, watch=stop)
    run = simulate(**SMALL, runs=tmp_path, save_every=2)
    assert run.table() == simulate(**SMALL).table()
    kept = run.load(tmp_path / run.name)
    mine, theirs = (one.recommender.world.ratings for one in (run, kept))
    assert mine.unseen.keys() == theirs.unseen.keys()
    assert all((mine.unseen[what] == theirs.unseen[what]).all() for what in mine.unseen)
    assert kept.final == run.final
    assert "<unknown>" in mine.catalogue.ids


def test_the_texts_that_a_device_logs_over_http_are_the_words_of_the_simulated_one() -> None:
    world = make_world(**SMALL)
    vocabulary = Vocabulary.of(world.ratings.catalogue)
    devices = Devices(world)
    for person in range(24):
        events = vocabulary.encode(map(split_words, world.texts_of(person)))
        assert events.tolist() == world.events_of(person).items.tolist()
        assert devices[person].context.events(world.task).tolist() == events.tolist()


def test_noise_for_each_user_fits_a_language_model() -> None:
    run = simulate(**SMALL, epsilon=8.0, clip=0.5, compare_plain=True)
    task = run.engines[0].world.task
    assert task.privacy is not None
    assert task.privacy.unit == "user"
    assert run.same_as_plain is True
    assert run.engines[0].counts.failed == 0
    without = Engine(run.engines[0].world, way=PLAIN, noise=NO_NOISE)
    assert without.step().digest != run.rows[0].digest


def test_a_file_of_texts_is_read_where_the_model_learns_from_texts(tmp_path: Path) -> None:
    path = tmp_path / "chat.csv"
    path.write_text("user,text\n" + "".join(f"{user},the cat sat on mat {user}\n" for user in range(4) for _ in "ab"))
    world = make_world(model="lm", data=path, cohort=2, rounds=1, dimension=4)
    assert world.ratings.catalogue.ids[:2] == ("<unknown>", "<end>")
    assert world.task.capacity == world.ratings.item_count
    assert world.task.catalogue
