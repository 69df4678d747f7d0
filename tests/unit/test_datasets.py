"""MovieLens files are read as they are published, and split the same way for the same seed."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_shared.errors import SecEmbError
from secemb_tools.datasets import DatasetError, RatingSet, read_movielens, split
from secemb_tools.datasets.ratings import KINDS

GENRES = "0|" * 18 + "1"


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).write_text(text, encoding="latin-1")
    return directory


@pytest.fixture
def small_100k(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "u.data": "2\t3\t4\t881250949\n1\t1\t5\t891717742\n2\t1\t1\t878887116\n",
            "u.user": "1|24|M|technician|85711\n2|53|F|other|94043\n3|24|F|other|32067\n",
            "u.item": f"1|Toy Story (1995)|01-Jan-1995||http://x|{GENRES}\n2|unknown||||{'1|' + '0|' * 17 + '0'}\n"
            f"3|Misérables, Les (1995)|01-Jan-1995||http://y|0|1|{'0|' * 16}1\n",
            "u.occupation": "other\ntechnician\nwriter\n",
        },
    )


@pytest.fixture
def small_1m(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "ratings.dat": "1::3186::4::978300019\n2::3952::5::978300055\n2::3186::1::978300055\n",
            "users.dat": "1::F::1::10::48067\n2::M::56::16::70072\n",
            "movies.dat": "1::Toy Story (1995)::Animation|Comedy\n3186::Girl::Drama\n3952::Été::Drama|Thriller\n",
        },
    )


def triples(ratings: RatingSet) -> list[tuple[int, int, float]]:
    return list(zip(ratings.people.tolist(), ratings.items.tolist(), ratings.values.tolist(), strict=True))


def test_the_smaller_set_is_read_with_gender_age_occupation_and_genres(small_100k: Path) -> None:
    ratings = read_movielens(small_100k)
    assert (ratings.layout, ratings.person_count, ratings.item_count) == ("ML100K", 3, 3)
    assert triples(ratings) == [(1, 2, 4.0), (0, 0, 5.0), (1, 0, 1.0)]
    assert ratings.values.dtype == np.float32
    # F, M; 24, 53; other, technician, writer
    assert ratings.user_features.tolist() == [[0, 1, 1, 0, 0, 1, 0], [1, 0, 0, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0, 0]]
    assert [np.flatnonzero(film).tolist() for film in ratings.item_features] == [[18], [0], [1, 18]]
    assert ratings.item_features.shape == (3, 19)


def test_the_larger_set_has_numbers_without_the_gaps_of_its_ids(small_1m: Path) -> None:
    ratings = read_movielens(small_1m)
    assert (ratings.layout, ratings.person_count, ratings.item_count) == ("ML1M", 2, 3)
    assert triples(ratings) == [(0, 1, 4.0), (1, 2, 5.0), (1, 1, 1.0)]
    assert ratings.user_features.shape == (2, 2 + 2 + 21)
    assert [np.flatnonzero(person).tolist() for person in ratings.user_features] == [[0, 2, 14], [1, 3, 20]]
    assert ratings.item_features.tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


def test_a_directory_without_ratings_is_refused_with_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"grouplens\.org") as caught:
        read_movielens(tmp_path)
    assert isinstance(caught.value, SecEmbError)


def test_a_file_that_is_missing_is_named(small_100k: Path) -> None:
    (small_100k / "u.user").unlink()
    with pytest.raises(DatasetError, match=r"u\.user"):
        read_movielens(small_100k)


def test_a_rating_of_a_person_who_is_not_listed_is_kept_without_features(small_1m: Path) -> None:
    with (small_1m / "ratings.dat").open("a") as file:
        file.write("7::1::5::978300055\n")
    ratings = read_movielens(small_1m)
    assert ratings.user_ids == ("1", "2", "7")
    assert not ratings.user_features[2].any()
    assert ratings.report.unlisted_people == 1


def test_a_set_has_the_name_of_its_folder_and_a_kind_only_if_it_is_the_published_one(
    small_100k: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratings = read_movielens(small_100k)
    assert (ratings.name, ratings.kind, ratings.label) == (small_100k.name, None, small_100k.name)
    monkeypatch.setitem(KINDS, "ML100K", (3, 3, 3))
    ratings = read_movielens(small_100k)
    assert (ratings.name, ratings.kind, ratings.label) == (small_100k.name, "ML100K", "ML100K")
    assert split(ratings, seed=1).train.label == "ML100K"  # a part of it too


def test_ids_and_titles_of_films_are_kept(small_100k: Path) -> None:
    films = read_movielens(small_100k).catalogue
    assert films.title_of(films.row_of("3")) == "Misérables, Les (1995)"
    assert films.others["genres"] == ("Western", "unknown", "Action|Western")


def test_a_split_has_every_rating_once() -> None:
    ratings = made_up_ratings(people=20, items=50, count=300)
    parts = split(ratings, seed=4)
    assert sorted(triples(parts.train) + triples(parts.test)) == sorted(triples(ratings))
    assert parts.test.values.size == round(0.2 * ratings.values.size)
    assert parts.train.person_count == parts.test.person_count == 20
    assert parts.train.item_count == 50


def test_a_split_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    ratings = made_up_ratings(people=20, items=50, count=300)
    assert triples(split(ratings, seed=4).test) == triples(split(ratings, seed=4).test)
    assert triples(split(ratings, seed=4).test) != triples(split(ratings, seed=5).test)


def test_the_ratings_of_a_person_lie_together_and_are_sorted_by_item() -> None:
    train = split(made_up_ratings(people=20, items=50, count=300), seed=4).train
    places = train.by_person()
    assert len(places) == 20
    assert sum(place.stop - place.start for place in places) == train.values.size
    for person, place in enumerate(places):
        assert (train.people[place] == person).all()
        assert (np.diff(train.items[place]) > 0).all()


def test_people_without_ratings_have_an_empty_place(small_100k: Path) -> None:
    places = read_movielens(small_100k).only(np.arange(3)).by_person()
    assert [place.stop - place.start for place in places] == [1, 2, 0]
