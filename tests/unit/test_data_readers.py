"""Every format of ratings is read as it is published, and what is none is refused with the line and the fix."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from secemb_tools.datasets import DatasetError, RatingSet, read_ratings
from secemb_tools.datasets.made_up import make_ratings
from secemb_tools.datasets.yelp import BUSINESSES, REVIEWS, read_yelp

FILMS_10M = (
    "1::Toy Story (1995)::Animation|Comedy\n"
    "7::Été: the film (1996)::Drama\n"
    "65130::Nobody knows (2008)::(no genres listed)\n"
)


def write(directory: Path, files: dict[str, str], encoding: str = "utf-8") -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding=encoding)
    return directory


def triples(ratings: RatingSet) -> list[tuple[int, int, float]]:
    return list(zip(ratings.people.tolist(), ratings.items.tolist(), ratings.values.tolist(), strict=True))


def test_movielens_10m_has_half_stars_genres_and_nothing_about_people(tmp_path: Path) -> None:
    ratings = read_ratings(
        write(
            tmp_path,
            {"ratings.dat": "5::7::3.5::838985046\n2::1::5::838983525\n5::65130::1::1\n", "movies.dat": FILMS_10M},
            "latin-1",
        )
    )
    assert (ratings.layout, ratings.name) == ("ML10M", tmp_path.name)
    assert triples(ratings) == [(1, 1, 3.5), (0, 0, 5.0), (1, 2, 1.0)]
    assert ratings.user_features.shape == (2, 0)
    assert ratings.item_features.tolist() == [[0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert ratings.times is not None
    assert ratings.times.tolist() == [838985046, 838983525, 1]


def test_movielens_25m_is_csv_with_titles_in_quotes(tmp_path: Path) -> None:
    movies = 'movieId,title,genres\n1,Toy Story (1995),Comedy\n296,"Good, the Bad, The",Action|Comedy\n'
    ratings = read_ratings(
        write(
            tmp_path,
            {"ratings.csv": "userId,movieId,rating,timestamp\n1,296,5.0,1147880044\n9,1,0.5,1\n", "movies.csv": movies},
        )
    )
    assert (ratings.layout, ratings.name) == ("ML25M", tmp_path.name)
    assert triples(ratings) == [(0, 1, 5.0), (1, 0, 0.5)]
    assert ratings.item_features.tolist() == [[0, 1], [1, 1]]


def test_a_movielens_rating_of_a_film_that_is_not_listed_is_kept_without_a_title(tmp_path: Path) -> None:
    write(tmp_path, {"ratings.dat": "1::8::5::1\n1::7::4::2\n", "movies.dat": FILMS_10M}, "latin-1")
    ratings = read_ratings(tmp_path)
    assert triples(ratings) == [(0, 3, 5.0), (0, 1, 4.0)]
    assert ratings.catalogue.ids == ("1", "7", "65130", "8")
    assert ratings.catalogue.title_of(1) == "Été: the film (1996)"
    assert ratings.catalogue.title_of(3) is None
    assert not ratings.item_features[3].any()
    assert ratings.report.unlisted_items == 1


def test_a_movielens_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"ratings.dat": "1::1::5::1\n2::\n", "movies.dat": FILMS_10M}, "latin-1")
    with pytest.raises(DatasetError, match=r"ratings\.dat, line 2: too few fields"):
        read_ratings(tmp_path)


def reviews(*rows: tuple[str, str, int]) -> str:
    found = [
        {"user_id": who, "business_id": what, "stars": stars, "date": "2018-07-07 22:09:11"}
        for who, what, stars in rows
    ]
    return "".join(json.dumps(one) + "\n" for one in found)


def businesses(**states: str) -> str:
    return "".join(
        json.dumps({"business_id": name, "name": f"The {name}", "state": state}) + "\n"
        for name, state in states.items()
    )


def test_yelp_keeps_the_most_active_people_and_the_state_of_each_business(tmp_path: Path) -> None:
    files = {
        REVIEWS: reviews(("a", "x", 5), ("b", "x", 1), ("b", "y", 2), ("c", "z", 3), ("b", "x", 4), ("c", "y", 5)),
        BUSINESSES: businesses(x="PA", y="FL", z="PA", w="NV"),
    }
    ratings = read_yelp(write(tmp_path, files), people=2)
    assert triples(ratings) == [(0, 1, 2.0), (1, 2, 3.0), (0, 0, 4.0), (1, 1, 5.0)]  # b's last word on x counts
    assert ratings.item_features.tolist() == [[0, 1], [1, 0], [0, 1]]  # FL, PA; NV has no rating
    assert ratings.user_features.shape == (2, 0)
    assert read_ratings(tmp_path).person_count == 3


def test_a_yelp_business_that_is_not_listed_is_kept_without_a_name(tmp_path: Path) -> None:
    write(tmp_path, {REVIEWS: reviews(("a", "x", 5), ("a", "y", 4)), BUSINESSES: businesses(y="PA")})
    ratings = read_ratings(tmp_path)
    assert ratings.item_features.tolist() == [[0], [1]]
    assert [ratings.catalogue.title_of(row) for row in range(2)] == [None, "The y"]
    assert ratings.report.unlisted_items == 1


def test_yelp_without_its_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {REVIEWS: reviews(("a", "x", 5))})
    with pytest.raises(DatasetError, match=r"business\.json is missing.*unpack Yelp's archive"):
        read_ratings(tmp_path)
    write(tmp_path, {REVIEWS: "no json\n", BUSINESSES: businesses(y="PA")})
    with pytest.raises(DatasetError, match=r"review\.json, line 1: not a JSON object"):
        read_ratings(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "A1,0439886341,1.0,1334707200\nA2,B00000JRSB,5.0,1\nA2,0439886341,4.0,2\n",  # Amazon, 2014
        "0439886341,A1,1.0,1334707200\nB00000JRSB,A2,5.0,1\n0439886341,A2,4.0,2\n",  # Amazon, 2018
        "user_id,parent_asin,rating,timestamp\nA1,x,1.0,1334707200\nA2,y,5.0,1\nA2,x,4.0,2\n",  # Amazon, 2023
        "rating;userId;itemId\n".replace(";", ",") + "1,A1,x\n5,A2,y\n4,A2,x\n",
        "\ufeffUser,Item,Stars\r\nA1,x,1\r\nA2,y,5\r\n\r\nA2,x,4\r\n",  # from a spreadsheet
        "A1,x,1\nA2,y,5\nA2,x,2\nA2,x,4\n",  # no names, and a second thought
    ],
)
def test_a_table_of_ratings_is_read_however_it_is_arranged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8", newline="")
    ratings = read_ratings(path)
    assert triples(ratings) == [(0, 0, 1.0), (1, 1, 5.0), (1, 0, 4.0)]
    assert (ratings.person_count, ratings.item_count) == (2, 2)
    assert ratings.name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("user,item,rating\n", "has no ratings"),
        ("user,item,rating\na,b,good\n", "line 2"),
        ("user,item,rating\na,b,3\na,b\n", "line 3"),
        ("user,item,rating\na,b,nan\n", "line 2"),
        ("ab\n", "line 1: no columns found"),
    ],
)
def test_a_table_without_ratings_is_refused_with_the_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(DatasetError, match=words) as caught:
        read_ratings(path)
    assert "user, item and rating" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("user,item,rating,date\na,x,3,1970-01-02\na,y,3,1970-01-01 00:00:09\n", [86400, 9]),
        ("user,item,rating,time\na,x,3,1970-01-01T01:00:09+01:00\na,y,3,1970-01-01T00:00:07Z\n", [9, 7]),
        ("user,item,rating,timestamp\na,x,3,1334707200.75\na,y,3,1.5e9\n", [1334707200, 1500000000]),
        ("user,item,rating,timestamp\na,x,3,1688767511123456789\na,y,3,\n", [1688767511, 0]),
        ("user,item,rating,timestamp\na,x,3,NaN\na,y,3,7\n", [0, 7]),  # pandas writes so what is missing
        ("a,x,3,2018-07-07\na,y,3,2018-07-08\n", [1530921600, 1531008000]),  # no names
        ("user,item,rating,time\na,x,3,1530921600123\na,y,3,1530921601456\n", [1530921600, 1530921601]),
    ],
)
def test_times_are_seconds_or_dates(text: str, times: list[int], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    ratings = read_ratings(path)
    assert ratings.times is not None
    assert ratings.times.tolist() == times


@pytest.mark.parametrize("time", ["yesterday", "07/08/2018", "1e400", "2018-13-01", "9" * 20])
def test_a_time_that_cannot_be_read_is_refused_with_the_line_and_how_to_write_it(time: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    for text, line in ((f"user,item,rating,date\na,x,3,{time}\n", 2), (f"a,x,3,{time}\n", 1)):
        path.write_text(text)
        with pytest.raises(DatasetError, match=f"line {line}: the time cannot be read .* 2018-07-07"):
            read_ratings(path)


@pytest.mark.parametrize(
    ("text", "order", "people"),
    [
        ("1234567890,x,3\n1234567890,y,4\n", "user, item, rating", 1),
        ("1234567890,77,3\n1234567891,77,4\n1234567891,78,4\n", "user, item, rating", 2),
        ("0439886341,77,3\n0439886341,ann,4\n", "user, item, rating", 1),
        ("0439886341,A1N4O8VOJZTDVB,3,1\n0439886341,A2N4O8VOJZTDVB,4,2\n", "item, user, rating, time", 2),  # books
        ("0439886341,7,3\nB00000JRSB,8,4\nB00000JRSB,9,4\n", "item, user, rating", 3),
        ("B00000JRSB,7,3\nann,8,4\nann,9,4\n", "user, item, rating", 2),
    ],
)
def test_columns_without_names_are_not_swapped_for_digits_and_their_order_is_said(
    text: str, order: str, people: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    assert read_ratings(path).person_count == people
    said = capsys.readouterr()
    assert said.err.strip().endswith(f"read as {order}")
    assert not said.out
    path.write_text("user,item,rating\n" + "1234567890,x,3\n")
    read_ratings(path)
    assert not capsys.readouterr().err  # names leave nothing to guess


def test_a_set_has_a_name_that_tasks_and_directories_can_bear(tmp_path: Path) -> None:
    path = tmp_path / ("Bücher\n\u202e" + 80 * "x" + ".csv")
    path.write_text("user,item,rating\na,x,3\n")
    name = read_ratings(path).name
    assert name.startswith("B_cher__xxx")
    assert len(name) == 80
    assert "deepfm on " + name == ascii("deepfm on " + name)[1:-1]


def test_making_ratings_up_takes_no_table_of_all_people_and_items() -> None:
    people, items = 500, 5000
    tracemalloc.start()
    try:
        make_ratings(people=people, items=items, most=20, seed=1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * people * items / 4


def test_made_up_ratings_have_a_long_tail_and_follow_their_seed() -> None:
    one, same, other = (make_ratings(people=150, items=500, most=60, seed=seed) for seed in (1, 1, 2))
    assert triples(one) == triples(same)
    assert triples(one) != triples(other)
    counts = np.sort(np.bincount(one.items, minlength=500))[::-1]
    assert counts[:50].sum() > 2 * counts[-250:].sum()
    assert np.bincount(one.people).max() <= 60
    assert len(set(zip(one.people.tolist(), one.items.tolist(), strict=True))) == one.values.size
    assert set(one.values.tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
