"""Rating sets that are cut off, damaged or empty are refused with the file, the line where it is known, and the fix."""

import json
from pathlib import Path

import pytest
from tests.unit.test_data_readers import FILMS_10M, businesses, reviews, write
from typer.testing import CliRunner

from secemb_tools.cli.main import app
from secemb_tools.datasets import DatasetError, read_ratings
from secemb_tools.datasets.yelp import BUSINESSES, REVIEWS

NAMES_25M = "userId,movieId,rating,timestamp\n"
SMALL_100K = {
    "u.data": "1\t1\t5\t891717742\n",
    "u.user": "1|24|M|technician|85711\n",
    "u.item": f"1|Toy Story (1995)|01-Jan-1995||http://x|{'0|' * 18}1\n",
    "u.occupation": "technician\n",
}
SMALL_1M = {"ratings.dat": "1::1::4::978300019\n", "users.dat": "1::F::1::10::48067\n", "movies.dat": FILMS_10M}
SMALL_10M = {"ratings.dat": "1::1::4.5::978300019\n", "movies.dat": FILMS_10M}
SMALL_25M = {
    "ratings.csv": NAMES_25M + "1,1,5.0,1147880044\n",
    "movies.csv": "movieId,title,genres\n1,Toy Story,Comedy\n",
}
SMALL_YELP = {REVIEWS: reviews(("a", "x", 5)), BUSINESSES: businesses(x="PA")}
SETS = (SMALL_100K, SMALL_1M, SMALL_10M, SMALL_25M, SMALL_YELP)


@pytest.mark.parametrize("files", SETS)
def test_the_small_sets_are_whole(files: dict[str, str], tmp_path: Path) -> None:
    assert read_ratings(write(tmp_path, files)).values.size == 1


@pytest.mark.parametrize(
    ("files", "name", "text", "words"),
    [
        (SMALL_100K, "u.data", "1\t1\t5\t891717742\n1\t1", r"u\.data, line 2"),
        (SMALL_100K, "u.data", "1\t1\tfine\t891717742\n", r"u\.data, line 1"),
        (SMALL_100K, "u.data", "", "no rating"),
        (SMALL_100K, "u.user", "1|24|M\n", r"u\.user, line 1"),
        (SMALL_100K, "u.user", "1|young|M|technician|85711\n", r"u\.user, line 1"),
        (SMALL_100K, "u.item", "1|Toy Story (1995)\n", r"u\.item, line 1"),
        (SMALL_1M, "ratings.dat", "1::1::4::978300019\n1::1::4\n", r"ratings\.dat, line 2"),
        (SMALL_1M, "ratings.dat", "", "no rating"),
        (SMALL_1M, "users.dat", "1::F::x::10::48067\n", r"users\.dat, line 1"),
        (SMALL_1M, "movies.dat", "1::Toy Story\n", r"movies\.dat, line 1"),
        (SMALL_10M, "ratings.dat", "", r"ratings\.dat is empty: no ratings"),
        (SMALL_10M, "ratings.dat", "1::1::nan::978300019\n", r"ratings\.dat"),
        (SMALL_25M, "movies.csv", "title,genres\nToy Story,Comedy\n", r"movies\.csv has no column recognised"),
        (SMALL_25M, "movies.csv", "movieId,title,genres\n1,Toy Story\n", r"movies\.csv, line 2"),
        (SMALL_25M, "ratings.csv", NAMES_25M, r"ratings\.csv has no ratings"),
        (SMALL_25M, "ratings.csv", NAMES_25M + "1,1,5.0\n", r"ratings\.csv"),
        (SMALL_YELP, REVIEWS, '{"business_id": "x", "stars": 5}\n', "review.json, line 1"),
        (SMALL_YELP, REVIEWS, reviews(("a", "x", 5)) + '{"user_id": "a", "busi', "review.json, line 2"),
        (SMALL_YELP, REVIEWS, '{"user_id": "a", "business_id": "x", "stars": "many"}\n', "review.json, line 1"),
        (SMALL_YELP, REVIEWS, '{"user_id": "a", "business_id": "x"}\n', "review.json, line 1"),
        (SMALL_YELP, REVIEWS, '{"user_id": ["a"], "business_id": "x", "stars": 5}\n', "review.json, line 1"),
        (SMALL_YELP, REVIEWS, "", "no rating"),
        (SMALL_YELP, BUSINESSES, '{"business_id": "x"}\n', "business.json, line 1"),
    ],
)
def test_a_damaged_set_is_refused_with_its_file(
    files: dict[str, str], name: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=words):
        read_ratings(write(tmp_path, files | {name: text}))


def test_films_in_latin_1_are_read_and_films_that_are_no_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path, SMALL_25M)
    (tmp_path / "movies.csv").write_bytes("movieId,title,genres\n1,Été,Comedy\n".encode("latin-1"))
    assert read_ratings(tmp_path).catalogue.title_of(0) == "Été"
    (tmp_path / "movies.csv").write_bytes(bytes(100))
    with pytest.raises(DatasetError, match=r"movies\.csv is a binary file"):
        read_ratings(tmp_path)


def test_one_damaged_line_in_hundreds_makes_no_movielens_unreadable(tmp_path: Path) -> None:
    lines = [f"{person}\t1\t5\t891717742" for person in range(1, 300)]
    people = [f"{person}|24|M|technician|85711" for person in range(1, 300)]
    files = {"u.data": "\n".join([*lines, "7\t2\tfine\t1"]), "u.user": "\n".join([*people, "300|young|M|x|1"])}
    report = read_ratings(write(tmp_path, SMALL_100K | files)).report
    assert [(Path(one.source).name, one.line, one.value) for one in report.faults] == [
        ("u.user", 300, "young"),
        ("u.data", 300, "fine"),
    ]


def test_an_empty_set_has_no_figures_that_json_does_not_know(tmp_path: Path) -> None:
    write(tmp_path, SMALL_100K | {"u.data": ""})
    done = CliRunner().invoke(app, ["data", "show", str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert "no rating" in done.stderr
    assert not done.stdout


def test_a_figure_that_is_no_number_is_not_written_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    from secemb_tools.output import show_json

    with pytest.raises(ValueError, match="JSON"):
        show_json({"rmse": float("inf")})
    show_json({"rmse": 1.0})
    assert json.loads(capsys.readouterr().out) == {"rmse": 1.0}
