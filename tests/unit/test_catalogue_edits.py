"""Items that are added to a catalogue, changed, or retired."""

from pathlib import Path

import pytest

from secemb_shared.catalogue import Catalogue, digest_of
from secemb_shared.errors import CatalogueError
from secemb_tools.datasets.catalogue import catalogue_from
from secemb_tools.errors import DatasetError, OperationError
from secemb_tools.operate import catalogue_edits


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def films(tmp_path: Path) -> Path:
    return write(tmp_path / "films.csv", "row,id,title,year\n0,a,One,1999\n1,b,Two,2000\n2,c,,\n")


def test_new_items_follow_and_known_ones_stay_in_their_place(films: Path, tmp_path: Path) -> None:
    news = write(tmp_path / "news.csv", "id,title,stars\nd,Four,5\nb,Second,4\nc,,1\na,One,1\n")
    done = catalogue_edits.add(films, news, None)
    assert (done["added"], done["changed"], done["retired"], done["items"]) == (1, 1, 0, 4)
    assert films.read_text() == "row,id,title,year\n0,a,One,1999\n1,b,Second,2000\n2,c,,\n3,d,Four,\n"
    assert done["catalogue"] == digest_of(films.read_bytes())
    before = films.read_bytes()
    again = catalogue_edits.add(films, news, None)  # as a job that runs every night
    assert (again["added"], again["changed"], films.read_bytes()) == (0, 0, before)


def test_retired_items_leave_no_gap(films: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert catalogue_edits.retire(films, ["b"], out)["retired"] == 1
    assert out.read_text() == "row,id,title,year\n0,a,One,1999\n1,c,,\n"
    assert catalogue_from(films).ids == ("a", "b", "c")


def test_a_mistake_retires_nothing(films: Path) -> None:
    before = films.read_bytes()
    with pytest.raises(CatalogueError, match="no item has the id 'x'"):
        catalogue_edits.retire(films, ["a", "x"], None)
    with pytest.raises(OperationError, match="2 of 3 items; add --force"):
        catalogue_edits.retire(films, ["a", "b"], None)
    with pytest.raises(OperationError, match="at least one item"):
        catalogue_edits.retire(films, ["a", "b", "c"], None, force=True)
    assert films.read_bytes() == before
    assert catalogue_edits.retire(films, ["a", "b"], None, force=True)["items"] == 1


def test_ids_come_from_a_list_or_a_table(tmp_path: Path) -> None:
    assert catalogue_edits.read_ids(write(tmp_path / "one", "a\n\n b \n")) == ["a", "b"]
    assert catalogue_edits.read_ids(write(tmp_path / "two.csv", "id,title\na,x\nb,y\n")) == ["a", "b"]


def test_an_id_that_is_listed_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="the id 'a' is listed twice"):
        Catalogue(ids=("b", "a", "a"))
    with pytest.raises(DatasetError, match="the id 'q' more than once"):
        catalogue_from(write(tmp_path / "twice.csv", "id,title\nq,x\nb,z\nq,y\n"))


def test_differences_are_listed_with_titles(films: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.csv", "row,id,title,year\n0,c,Three,\n1,d,Four,\n2,b,Two,2000\n")
    found = [(one["what"], one["id"], one["title"]) for one in catalogue_edits.differences(films, new)]
    assert found == [("added", "d", "Four"), ("changed", "c", "Three"), ("retired", "a", "One")]
    assert catalogue_edits.describe(films)["columns"] == ["id", "title", "year"]
