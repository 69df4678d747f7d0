"""A data directory that has lost something is put in order with the commands that `secemb check` names."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.commands import json_of, refused, run
from tests.e2e.place import Place
from tests.unit.loopback import answer, serving

from secemb_party.storage.model_files import state_name
from secemb_tools.local.process import Service


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("place"))
    yield made
    made.close()


def model_file(server: Service) -> Path:
    (found,) = (server.folder / "data" / "models").glob("*/v000000.safetensors")
    return found


@pytest.mark.parametrize("role", [0, 1])
def test_a_lost_model_comes_back_from_the_other_server_while_both_run(place: Place, role: int) -> None:
    server = place.pair.servers[role]
    path, source = model_file(server), ("--from", place.pair.urls[0]) if role == 1 else ()
    kept, numbers = path.read_bytes(), 4 * place.pair.task.items * place.pair.task.row_width
    for content in (None, kept[:-1], kept[:-4] + b"\x00\x00\x80\x3f"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert "secemb model fetch" in run("check", server.folder, "--offline", code=1)
        (found,) = json_of("model fetch", *source, "--config", server.folder)
        assert found["fetched"]
        assert path.read_bytes()[-numbers:] == kept[-numbers:]  # what is before them has no order
        run("check", server.folder)
    (found,) = json_of("model fetch", *source, "--config", server.folder)
    assert not found["fetched"]


def test_what_the_other_server_sends_is_not_trusted(place: Place) -> None:
    server = place.pair.servers[1]
    path, task = model_file(server), place.pair.task
    kept = path.read_bytes()
    path.unlink()
    try:
        for body, words in (
            (bytes(4 * task.items * task.row_width), "does not match"),
            (bytes(4 * task.items * task.row_width + 1), "something other than"),
            (b"", "something other than"),
        ):
            with serving(answer(body)) as other:
                assert words in refused("model", "fetch", "--from", other.url, "--config", server.folder)
            assert not path.exists()
        assert "could not fetch" in refused("model", "fetch", "--from", "http://127.0.0.1:9", "--config", server.folder)
    finally:
        path.write_bytes(kept)


def test_an_optimiser_whose_state_does_not_fit_starts_over_and_it_is_recorded(place: Place) -> None:
    server = place.pair.servers[0]
    state = model_file(server).with_name(state_name(0))
    for words in ((), ("--json",)):
        state.write_bytes(b"not a state")
        assert "secemb model reset-optimiser" in run("check", server.folder, "--offline", code=1)
        assert "version" in run("model", "reset-optimiser", "--config", server.folder, *words)
        run("check", server.folder)
    state.write_bytes(b"not a state")
    assert json_of("model reset-optimiser", "--config", server.folder)["version"] == 0
    exported = place.new(".jsonl")
    run("ledger", "export", exported, "--config", server.folder)
    assert exported.read_text().count('"optimiser"') == 3
