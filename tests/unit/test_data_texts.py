"""Texts in files: who wrote what, repeats, what is set aside, rare words, odd lines, and a made-up grammar."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from secemb_sdk.words import END, SPECIAL, UNKNOWN
from secemb_tools.datasets import RatingSet
from secemb_tools.datasets.made_up_texts import make_texts
from secemb_tools.datasets.texts import OTHER_PEOPLE, OTHER_TEXTS, Author, read_texts, set_of, texts_in
from secemb_tools.errors import DatasetError


def written(folder: Path, name: str, lines: Sequence[object]) -> Path:
    path = folder / name
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def texts_of(data: RatingSet) -> dict[str, list[str]]:
    """Return each person's texts as words with spaces."""
    words = data.catalogue.ids
    found = {}
    for person, name in enumerate(data.user_ids):
        mine = data.items[data.people == person]
        texts = [text[text != END] for text in texts_in(np.append(mine, END))]
        found[name] = [" ".join(words[row] for row in text) for text in texts]
    return found


def test_lines_with_a_list_of_texts_are_people(tmp_path: Path) -> None:
    lines = [
        {"work": "One", "role": "FOOL", "speeches": ["Nuncle, nuncle!", "[Sings] So"]},
        {"work": "Two", "role": "FOOL", "speeches": ["Ay."]},
    ]
    data = read_texts(written(tmp_path, "roles.jsonl", lines), seed=1, least=1)
    assert texts_of(data) == {"One, FOOL": ["nuncle , nuncle !", "[ sings ] so"], "Two, FOOL": ["ay ."]}
    assert data.name == "roles"
    whole = read_texts(tmp_path, seed=1, least=1)
    assert (whole.name, whole.digest) == (tmp_path.name, data.digest)
    written(tmp_path, "more.csv", ["user,text"])
    with pytest.raises(DatasetError, match="2 files with texts"):
        read_texts(tmp_path, seed=1)


def test_a_table_has_a_text_in_each_line_and_its_times_count(tmp_path: Path) -> None:
    table = 'user,text,time\n7,"Hello, you",30\n8,hi hi hi,1\n7,first,20\n8,,5\n,whose?,6\n'
    path = written(tmp_path, "chat.csv", [table.rstrip()])
    with pytest.raises(DatasetError, match="no user"):
        read_texts(path, seed=1, least=1)
    data = read_texts(path, seed=1, least=1, junk_share=0.5)
    assert texts_of(data) == {"8": ["hi hi hi"], "7": ["first", "hello , you"]}
    assert data.report.skipped == 1


def test_columns_with_other_names_are_selected(tmp_path: Path) -> None:
    path = written(tmp_path, "chat.csv", ["who,said", "ann,yes", "bob,no"])
    assert texts_of(read_texts(path, seed=1, least=1, columns="user=who,item=said")) == {"ann": ["yes"], "bob": ["no"]}
    with pytest.raises(DatasetError, match="no column recognised as text"):
        read_texts(path, seed=1, least=1, columns="user=who")
    lines: list[object] = [{"user": 1, "message": "a b"}, {"user": 1, "message": "c"}]
    assert texts_of(read_texts(written(tmp_path, "x.jsonl", lines), seed=1, least=1)) == {"1": ["a b", "c"]}


def test_words_are_in_the_order_of_how_often_they_occur_and_rare_ones_are_unknown() -> None:
    data = set_of("x", [Author("a", [["b", "b", "a", "a", "c", "d"]]), Author("b", [["b", "d", "e"]])], seed=1)
    assert data.catalogue.ids == (*SPECIAL, "b", "a", "d")
    assert data.items.tolist() == [END, 2, 2, 3, 3, UNKNOWN, 4, END, 2, 4, UNKNOWN]
    with pytest.raises(DatasetError, match="at least 9 times"):
        set_of("x", [Author("a", [["b", "b"]])], seed=1, least=9)


def test_what_is_set_aside_is_on_no_device_and_its_words_are_not_in_the_vocabulary() -> None:
    authors = [Author(f"p{one}", [[f"w{one}", "and", f"t{one}x{text}"] for text in range(20)]) for one in range(50)]
    data = set_of("x", authors, seed=4, least=1)
    assert data.person_count == 45
    devices = {int(name[1:]) for name in data.user_ids}
    words = set(data.catalogue.ids)
    assert words & {f"w{one}" for one in range(50)} == {f"w{one}" for one in devices}
    others, texts = (texts_in(data.unseen[what]) for what in (OTHER_PEOPLE, OTHER_TEXTS))
    assert len(others) == 5 * 20
    assert 45 < len(texts) < 135
    kept = {word for word in words if word.startswith("t")}
    assert len(kept) == 45 * 20 - len(texts)
    assert all(text[1] == UNKNOWN == text[3] for text in others)
    assert all(text[1] != UNKNOWN == text[3] for text in texts)
    again, other = (set_of("x", authors, seed=seed, least=1) for seed in (4, 5))
    assert again.digest == data.digest != other.digest


def test_a_person_with_a_single_text_keeps_it_and_one_without_words_is_a_device_too() -> None:
    authors = [Author("a", [["x", "x"]]), Author("b", [[]]), Author("c", [])]
    data = set_of("x", authors, seed=1)
    assert data.person_count == 3
    assert data.items.tolist() == [END, 2, 2]
    assert data.unseen == {}


def test_made_up_texts_have_as_many_devices_as_asked_for_and_follow_their_grammar() -> None:
    data = make_texts(people=37, words=200, seed=1)
    assert data.person_count == 37
    assert 150 < data.item_count < 250
    for texts in texts_of(data).values():
        for text in texts:
            for sentence in text.split(" . "):
                words = sentence.removesuffix(" .").split()
                assert len(words) == 5
                assert words[3].endswith({"a": "ka", "these": "ti"}[words[0]])
    assert make_texts(people=37, words=200, seed=1).digest == data.digest
