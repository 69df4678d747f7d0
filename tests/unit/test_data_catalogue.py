"""Ids and titles survive: in memory, in one file, and under any characters; nothing heavy is imported for it."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_shared import catalogue as format_
from secemb_shared.errors import CatalogueError
from secemb_tools.datasets import Catalogue, DatasetError
from secemb_tools.datasets.catalogue import catalogue_from, read_catalogue, write_catalogue
from secemb_tools.datasets.made_up import GENRES, make_ratings

FILMS = Catalogue(
    ids=("1", "296", "x,y"),
    titles=("Toy Story (1995)", 'The "Good", the Bad', ""),
    others={"genres": ("Comedy", "Action|Comedy", "")},
)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


def test_an_item_is_found_by_its_id_and_by_words_of_its_title() -> None:
    assert [FILMS.row_of(name) for name in FILMS.ids] == [0, 1, 2]
    assert FILMS.id_of(1) == "296"
    assert FILMS.title_of(0) == "Toy Story (1995)"
    assert FILMS.title_of(2) is None
    assert FILMS.search("toy") == [0]
    assert len(FILMS) == 3
    with pytest.raises(CatalogueError, match="no item has the id '7'; ids in this catalogue look like 1, 296, x,y"):
        FILMS.row_of("7")


def test_a_row_is_its_own_id_where_there_are_no_others() -> None:
    made = make_ratings(people=5, items=20, most=10, seed=1)
    for catalogue in (made.catalogue, Catalogue()):
        assert catalogue.id_of(7) == "7"
        assert catalogue.row_of("7") == 7
    assert Catalogue().title_of(7) is None
    assert made.person_of("4") == 4
    with pytest.raises(DatasetError, match="made up has no user '5'"):
        made.person_of("5")


def test_made_up_items_have_titles_and_genres_and_no_title_twice() -> None:
    made = make_ratings(people=5, items=9000, most=10, seed=1).catalogue
    assert len(set(made.titles)) == len(made) == 9000
    assert made.title_of(0) == "The Amber Alphabet"
    assert set(made.others["genre"]) == {one for pair in GENRES for one in pair}


def test_a_catalogue_is_one_file_that_any_program_reads(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.csv"
    write_catalogue(FILMS, path)
    assert path.read_text(encoding="utf-8").splitlines()[:2] == ["row,id,title,genres", "0,1,Toy Story (1995),Comedy"]
    again = read_catalogue(path)
    assert (again.ids, again.titles, again.others) == (FILMS.ids, FILMS.titles, FILMS.others)


@given(rows=st.lists(st.tuples(TEXTS.filter(bool), TEXTS, TEXTS), unique_by=lambda row: row[0], max_size=8))
def test_any_catalogue_is_read_as_it_was_written(rows: list[tuple[str, str, str]]) -> None:
    ids, titles, notes = (tuple(row[place] for row in rows) for place in range(3))
    one = Catalogue(ids=ids, titles=titles, others={"note": notes})
    again = Catalogue.read(io.StringIO(one.encode().decode(), newline=""))
    assert (again.ids, again.others["note"]) == (ids, notes)
    assert [again.title_of(row) for row in range(len(ids))] == [title or None for title in titles]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a catalogue: the first line must start with row,id,title"),
        ("id,title\n1,x\n", "is not a catalogue"),
        ("row,id,title\n1,x,y\n", "line 2: row 0 is missing"),
        ("row,id,title\n0,,y\n", "line 2 is corrupted"),
        ("row,id,title\n0,a,x\n2,b,y\n", "line 3: row 1 is missing"),
        ("row,id,title\n0,a,x\n1,b\n", "is corrupted; regenerate"),
        ("row,id,title\n0,a,x\n1,a,y\n", "the id 'a' is listed twice; ids must be unique"),
    ],
)
def test_a_damaged_catalogue_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.csv"
    path.write_text(text)
    with pytest.raises(CatalogueError, match=words):
        read_catalogue(path)


def test_a_catalogue_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"row,id,title\n0,1,Am\xe9lie\n")
    with pytest.raises(CatalogueError, match=r"latin\.csv is not UTF-8; regenerate"):
        read_catalogue(tmp_path / "latin.csv")


def test_a_catalogue_that_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_, "LARGEST", len(FILMS.encode()) - 1)
    with pytest.raises(CatalogueError, match="drop columns"):
        FILMS.encode()


@pytest.mark.parametrize(
    "text",
    [
        "row,id,title,year\n0,a,Été,1996\n1,b,,2001\n",
        "\ufeffrow,id,title,year\n0,a,Été,1996\n1,b,,2001\n",  # with a byte order mark
        "item_id:token\ttitle:token_seq\tyear:float\na\tÉté\t1996\nb\t\t2001\n",  # RecBole's .item
        "itemId;title;year\na;Été;1996\nb;;2001\n",
        "ID,title,year\na,Été,1996\nb,,2001\n",
    ],
)
def test_a_catalogue_is_made_of_any_list_of_items(text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    found = catalogue_from(path)
    assert (found.ids, found.titles, dict(found.others)) == (("a", "b"), ("Été", ""), {"year": ("1996", "2001")})


def test_a_catalogue_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        read_catalogue(tmp_path / "none.csv")


def test_nothing_imports_polars_before_something_is_read() -> None:
    modules = "secemb_tools.cli.main, secemb_tools.cli.data, secemb_tools.datasets"
    code = f"import sys, {modules}; print('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
