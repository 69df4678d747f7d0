"""Ids and titles from an operator's file to what a device prints, through two real servers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.commands import json_of, refused, run

from secemb_shared.catalogue import FILE, Catalogue, digest_of
from secemb_shared.messages import TaskSpec
from secemb_tools.local import Pair
from secemb_tools.specification import build_task

ITEMS = 40
FILMS = Catalogue(
    ids=tuple(f"tt{row:04}" for row in range(ITEMS)),
    titles=tuple(f"[red]Film[/red] \x1b[31m{row}: " + "long " * 30 for row in range(ITEMS)),
)
NUMBERS = ("--width", 3, "--capacity", 4, "--cohort", 4, "--min-cohort", 2, "--clip", 2)


def test_a_task_names_its_catalogue_and_both_directories_hold_it(tmp_path: Path) -> None:
    file = tmp_path / "films.item"  # as RecBole writes it
    file.write_text("item_id:token\tmovie_title:token_seq\n" + "".join(f"m{row}\tFilm {row}\n" for row in range(9)))
    facts = json_of("task create", "--out", tmp_path / "task", "--catalogue", file, *NUMBERS)
    assert facts["items"] == 9
    for role in (0, 1):
        folder = tmp_path / "task" / f"server{role}"
        task = TaskSpec.decode((folder / "task.json").read_bytes())
        assert task.catalogue == facts["catalogue"] == digest_of((folder / FILE).read_bytes())
        assert (folder / FILE).read_text().startswith("row,id,title\n0,m0,Film 0\n")
    again = json_of("task create", "--out", tmp_path / "again", "--catalogue", folder / FILE, *NUMBERS)
    assert again["task_id"] == facts["task_id"]


@pytest.mark.parametrize(
    ("file", "words", "fix"),
    [
        ("id,title\n1,x\n2,y\n", ("--items", 3), "lists 2 items; give --items 2, or omit --items"),
        (None, (), "cannot be read"),
        ("row,id,title\n0,a,x\n0,b,y\n", (), "line 3: row 1 is missing; regenerate"),
        ("name,weight\n1,x\n", (), "name its columns in a header"),
    ],
)
def test_a_file_that_cannot_name_the_items_is_refused(
    file: str | None, words: tuple[object, ...], fix: str, tmp_path: Path
) -> None:
    path = tmp_path / "films.csv"
    if file is not None:
        path.write_text(file)
    assert fix in refused("task", "create", "--out", tmp_path / "task", "--catalogue", path, *NUMBERS, *words)
    assert not (tmp_path / "task").exists()


def test_a_task_needs_a_number_of_items_or_a_list_of_them(tmp_path: Path) -> None:
    assert "give --items, or --catalogue" in refused("task", "create", "--out", tmp_path / "task", *NUMBERS)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    task = build_task(name="films", items=ITEMS, row_width=3, capacity=4, cohort=4, bound=2**10, fraction_bits=8)
    pair = Pair(tmp_path_factory.mktemp("pair"), task, catalogue=FILMS)
    with pair.running():
        yield pair


def test_a_device_prints_ids_and_titles_that_cannot_touch_the_terminal(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.csv"
    own.write_text("id,rating\ntt0003,5\n tt0017 ,2\n")
    home = tmp_path / "home"
    servers = ("--server0", pair.urls[0], "--server1", pair.urls[1], "--task", pair.task.task_id.hex())
    assert json_of("device join", home, *servers, "--ratings", own)["ratings"] == 2
    found = json_of("device recommend", home, "-k", ITEMS)
    assert {row["item"] for row in found} == set(range(ITEMS)) - {3, 17}
    assert all((row["id"], row["title"]) == (FILMS.id_of(row["item"]), FILMS.title_of(row["item"])) for row in found)
    shown = run("device", "recommend", home, "-k", 5)
    assert len(re.findall(r"^tt00\d\d +\S+ +\[red\]Film\[/red\]  \[31m\d+: long", shown, re.MULTILINE)) == 5
    assert "\x1b" not in shown
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run("device", "recommend", home, "-k", 5).splitlines()
    assert len(narrow) == 6
    assert all(re.match(r"tt00\d\d +\S+ +\[red\]Film", line) for line in narrow[1:])
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 80 for line in narrow)


def test_an_id_that_is_not_in_the_catalogue_is_refused(pair: Pair, tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("id,rating\nzz,5\n")
    servers = ("--server0", pair.urls[0], "--server1", pair.urls[1], "--task", pair.task.task_id.hex())
    said = refused("device", "join", tmp_path / "home", *servers, "--ratings", own)
    assert "ids in this catalogue look like tt0000, tt0001, tt0002" in said
    assert not (tmp_path / "home").exists()


def test_a_catalogue_that_was_swapped_is_found_before_a_server_starts(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pair.servers[1].folder
    file = folder / "task" / FILE
    before = file.read_bytes()
    try:
        file.write_bytes(before.replace(b"Film", b"Fulm"))
        said = run("check", folder, "--offline", code=1)
        assert re.search("fail +catalogue .* is not the catalogue of this task", said)
        # The ledger says which tasks run, and the one of the running server is taken.
        monkeypatch.setenv("SECEMB_LEDGER__URL", f"sqlite:///{tmp_path / 'ledger.db'}")
        assert "is not the catalogue of this task" in refused("serve", "--config", folder)
    finally:
        file.write_bytes(before)
    monkeypatch.undo()
    assert "is the task's" in run("check", folder, "--offline", code=0)
