"""Files as people have them, good and bad, with what comes of each: the ratings, or a message that names the fix."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from secemb_tools.datasets import DatasetError, RatingSet, read_ratings

PLAIN = "user,item,rating,time\nann,x,1,100\nbob,y,5,200\nbob,x,4,300\n"
ROWS = [("ann", "x", 1.0), ("bob", "y", 5.0), ("bob", "x", 4.0)]
CHOSEN = [("ann", "x", 1.0), ("bob", "y", 1.0), ("bob", "x", 1.0)]  # without ratings
TIMES = [100, 200, 300]
MANY = "".join(f"u{number % 20},i{number // 20},{number % 5 + 1}\n" for number in range(400))


@dataclass(frozen=True)
class Good:
    """A file, and what is read from it."""

    content: str | bytes | Callable[[Path], None]
    rows: list[tuple[str, str, float]]
    times: list[int] | None = None
    name: str = "mine.csv"
    implicit: bool = False
    columns: dict[str, str] | None = None


def recoded(separator: str) -> str:
    return PLAIN.replace(",", separator)


def zstd(path: Path) -> None:
    pl.read_csv(PLAIN.encode(), infer_schema=False).write_csv(path, compression="zstd")


def parquet(path: Path) -> None:
    pl.read_csv(PLAIN.encode()).write_parquet(path)


def dated_parquet(path: Path) -> None:
    times = pl.from_epoch(pl.Series([100, 200, 300]), time_unit="s")
    pl.read_csv(PLAIN.encode()).with_columns(time=times).write_parquet(path)


GOOD = {
    "comma": Good(PLAIN, ROWS, TIMES),
    "semicolon": Good(recoded(";"), ROWS, TIMES),
    "semicolon and decimal comma": Good("user;item;rating\nann;x;1,0\nbob;y;5,0\nbob;x;4\n", ROWS),
    "tab": Good(recoded("\t"), ROWS, TIMES, "mine.tsv"),
    "pipe": Good(recoded("|"), ROWS, TIMES),
    "two colons": Good(recoded("::"), ROWS, TIMES, "mine.dat"),
    "space": Good(recoded(" "), ROWS, TIMES, "mine.txt"),
    "several spaces": Good("ann  x  1\nbob y   5\nbob  x 4\n", ROWS, None, "mine.txt"),
    "no names": Good(PLAIN.partition("\n")[2], ROWS, [100, 200, 300]),
    "byte order mark and CRLF": Good(b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(), ROWS, TIMES),
    "UTF-16 of a spreadsheet": Good(PLAIN.replace(",", "\t").encode("utf-16"), ROWS, TIMES),
    "quotes": Good('"user","item","rating"\n"ann","x","1"\n"bob","y","5"\nbob,x,4\n', ROWS),
    "separators and lines in quotes": Good(
        'user,item,rating,note\n"ann","a, b",1,"two\nlines"\nbob,"say ""hi""",5,\n',
        [("ann", "a, b", 1.0), ("bob", 'say "hi"', 5.0)],
    ),
    "Latin-1": Good("user,item,rating\nÉva,x,1\nbob,y,5\n".encode("latin-1"), [("Éva", "x", 1.0), ("bob", "y", 5.0)]),
    "UTF-8": Good("user,item,rating\nÉva,日本,1\nbob,y,5\n", [("Éva", "日本", 1.0), ("bob", "y", 5.0)]),
    "gzip": Good(gzip.compress(PLAIN.encode()), ROWS, TIMES, "mine.csv.gz"),
    "gzip of Latin-1": Good(
        gzip.compress("user,item,rating\nÉva,x,1\nb,y,5\n".encode("latin-1")),
        [("Éva", "x", 1.0), ("b", "y", 5.0)],
        name="mine.csv.gz",
    ),
    "zstd": Good(zstd, ROWS, TIMES, "mine.csv.zst"),
    "Parquet": Good(parquet, ROWS, TIMES, "mine.parquet"),
    "Parquet with times": Good(dated_parquet, ROWS, TIMES, "mine.parquet"),
    "JSON lines": Good(
        '{"user_id": "ann", "asin": "x", "overall": 1, "text": "…"}\n'
        '{"user_id": "bob", "asin": "y", "overall": 5.0}\n\n{"asin": "x", "user_id": "bob", "overall": "4"}\n',
        ROWS,
        name="mine.jsonl",
    ),
    "JSON lines in gzip": Good(
        gzip.compress(b'{"user": "ann", "item": "x", "score": 1}\n{"user": "bob", "item": "y", "score": 5}\n'),
        [("ann", "x", 1.0), ("bob", "y", 5.0)],
        name="mine.jsonl.gz",
    ),
    "RecBole": Good(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\nann\tx\t1\t100\nbob\ty\t5\t200\nbob\tx\t4\t300\n",
        ROWS,
        TIMES,
        "mine.inter",
    ),
    "other names": Good("Stars,Reviewer ID,movieId\n1,ann,x\n5,bob,y\n4,bob,x\n", ROWS),
    "names that are given": Good(
        "who,what,mark,k\nann,x,1,9\nbob,y,5,9\nbob,x,4,9\n",
        ROWS,
        columns={"user": "who", "item": "what", "rating": "mark"},
    ),
    "numbers that are given": Good(
        "9,1,x,ann,?\n9,5,y,bob,?\n9,4,x,bob,?\n", ROWS, columns={"user": "4", "item": "3", "rating": "2"}
    ),
    "implicit: two columns": Good("ann x\nbob y\nbob x\n", CHOSEN, name="mine.txt", implicit=True),
    "implicit: user, item, time": Good(
        "ann,x,1530921600\nbob,y,1530921601\nbob,x,1530921602\n",
        CHOSEN,
        [1530921600, 1530921601, 1530921602],
        implicit=True,
    ),
    "implicit: no rating column": Good("uid,iid\nann,x\nbob,y\nbob,x\n", CHOSEN, implicit=True),
    "implicit: all ratings equal": Good("user,item,rating\nann,x,1\nbob,y,1\nbob,x,1\n", CHOSEN, implicit=True),
    "implicit: the rating is left out": Good(
        PLAIN, CHOSEN, None, columns={"user": "user", "item": "item"}, implicit=True
    ),
    "lists of items": Good(
        "0 7 8 9\n1 7\n2\n3 9 7\n",
        [("0", "7", 1.0), ("0", "8", 1.0), ("0", "9", 1.0), ("1", "7", 1.0), ("3", "9", 1.0), ("3", "7", 1.0)],
        name="mine.txt",
        implicit=True,
    ),
    "milliseconds": Good(
        "user,item,rating,ts\nann,x,1,1530921600123\nbob,y,5,1530921601999\n",
        [("ann", "x", 1.0), ("bob", "y", 5.0)],
        [1530921600, 1530921601],
    ),
    "dates": Good(
        "user,item,rating,date\nann,x,1,1970-01-01T00:01:40Z\nbob,y,5,1970-01-01 00:03:20\nbob,x,4,1970-01-02\n",
        ROWS,
        [100, 200, 86400],
    ),
    "ids that a program made 7.0": Good("user,item,rating\n7.0,1,3\n8.0,2,4\n", [("7", "1", 3.0), ("8", "2", 4.0)]),
    "blank lines": Good("\n\nuser,item,rating\n\nann,x,1\n   \nbob,y,5\nbob,x,4\n\n", ROWS),
    "comments before the table": Good("# from somewhere\n% user item rating\nann x 1\nbob y 5\nbob x 4\n", ROWS),
    "lines as an old Mac ends them": Good(PLAIN.replace("\n", "\r"), ROWS, TIMES),
    "an index before the columns": Good(",user,item,rating\n0,ann,x,1\n1,bob,y,5\n2,bob,x,4\n", ROWS),
    "Book-Crossing": Good(
        '"User-ID";"ISBN";"Book-Rating"\n"ann";"x";"1"\n"bob";"y";"5"\n"bob";"x";"4"\n'.encode("latin-1"), ROWS
    ),
    "names beside given ones": Good(
        "user,item,first,rating\nann,x,1,9\nbob,y,5,9\nbob,x,4,9\n", ROWS, columns={"rating": "first"}
    ),
    "repeats: the last by time": Good(
        "user,item,rating,time\nann,x,1,100\nbob,x,4,300\nbob,y,5,200\nbob,x,2,250\n",
        [("ann", "x", 1.0), ("bob", "x", 4.0), ("bob", "y", 5.0)],
        [100, 300, 200],
    ),
    "repeats: the last in the file": Good("user,item,rating\nbob,x,2\nann,x,1\nbob,y,5\nbob,x,4\n", ROWS),
    "a title beside each rating": Good("user,item,title,rating\nann,x,Ex,1\nbob,y,Why,5\nbob,x,Ex,4\n", ROWS),
}


def rows(ratings: RatingSet) -> list[tuple[str, str, float]]:
    """Return ratings under the ids of their file."""
    columns = zip(ratings.people.tolist(), ratings.items.tolist(), ratings.values.tolist(), strict=True)
    return [(ratings.user_ids[person], ratings.catalogue.id_of(item), value) for person, item, value in columns]


def write(path: Path, content: str | bytes | Callable[[Path], None]) -> Path:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD)
def test_a_good_file_is_read(case: Good, tmp_path: Path) -> None:
    ratings = read_ratings(write(tmp_path / case.name, case.content), columns=case.columns)
    assert rows(ratings) == case.rows
    assert (None if ratings.times is None else ratings.times.tolist()) == case.times
    assert ratings.implicit == case.implicit
    assert ratings.name == "mine"
    assert ratings.report.skipped == 0


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", r"mine\.csv is empty: no ratings; give a file with"),
    "comments": ("# nothing\n", r"mine\.csv has only blank lines or comments"),
    "blank": ("\n \n\n", r"mine\.csv has only blank lines or comments"),
    "names alone": ("user,item,rating\n", r"has no ratings, only a header"),
    "one column": ("hello\nworld\n", r"line 1: no columns found; name the columns user, item and rating"),
    "an image": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is a binary file; give CSV"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(50), "save the sheet as CSV"),
    "a pickle": (b"\x80\x04\x95" + bytes(50), "could run any code; save the frame as CSV or Parquet"),
    "truncated Parquet": (b"PAR1\x15\x04", "a truncated or corrupted Parquet file; write or download it again"),
    "truncated gzip": (gzip.compress(MANY.encode())[:-40], "truncated or corrupted; download or compress it again"),
    "gzip of binary data": (gzip.compress(bytes(5000)), "contains binary data; give CSV"),
    "a JSON array": ('[{"user": 1, "item": 2}]\n', r"is a JSON array; write one object per line"),
    "truncated JSON": ('{"user": 1, "it', "line 1: not a JSON object in UTF-8; write one object per line"),
    "JSON without columns": ('{"a": 1, "b": 2}\n', "no column recognised as user or item; its columns are a, b"),
    "unknown names": (
        "alpha,beta,gamma\n1,2,3\n4,5,6\n",
        r"its columns are alpha, beta, gamma; .*--columns user=alpha",
    ),
    "no item among the names": ("user,note,rating\n1,2,3\n", "--columns user=user,item=note"),
    "many columns without names": ("1,2,3,4,5\n6,7,8,9,0\n", r"5 columns and no header; .*--columns user=1,item=2"),
    "a word as a rating": (
        "user,item,rating\nann,x,good\n",
        r"line 2: the rating is not a number \('good'\); 1 of 1 lines are invalid.*: write a number",
    ),
    "NaN as a rating": ("user,item,rating\nann,x,nan\nbob,x,3\n", r"line 2: the rating is not a number \('nan'\)"),
    "infinity as a rating": ("user,item,rating\nann,x,inf\nbob,x,3\n", r"the rating is not a number \('inf'\)"),
    "no rating": ("user,item,rating\nann,x,\nbob,x,3\n", "line 2: no rating.*read the file as implicit feedback"),
    "an absurd rating": (
        "user,item,rating\nann,x,1e9\nbob,x,3\n",
        r"the rating is out of range \('1e9'\).*shifted columns",
    ),
    "no user": ("user,item,rating\nann,x,2\n,x,3\n", "line 3: no user.*fill in the cell"),
    "no item": ("user,item,rating\nann,NULL,2\nbob,x,3\n", r"line 2: no item \('NULL'\)"),
    "a negative id": (
        "user,item,rating\n-1,x,2\n2,x,3\n",
        r"line 2: not a user id \('-1'\).*a number from 0 or any text",
    ),
    "an absurd id": (f"user,item,rating\n1,{'x' * 300},2\n2,x,3\n", r"not an item id \('x{40}'\)"),
    "a list as an id": ('{"user": ["a"], "item": "x"}\n', r"line 1: not a user id \('\[\"a\"\]'\)"),
    "a short line": ("user,item,rating\nann,x,2\nbob,x\n", "line 3: too few fields; 1 of 2 lines.*--junk 0.51"),
    "a long line": ("user,item,rating\nann,x,2\nbob,x,3,4\n", "line 3: too many fields.*put quotes around"),
    "a quote that is not closed": (
        'user,item,rating\n"ann",x,2\n"bob,x,3\neve,x,3\n',
        "line 3: a quote is not closed.*close the quote",
    ),
    "a quote that swallows the rest": (
        'user,item,rating\n"ann",x,2\n"bob,x,3\n' + "eve,x,3\n" * 20_000,
        "line 3: not CSV.*close the quote",
    ),
    "several reasons": (
        "user,item,rating\n,x,2\nann,x,good\nbob,x,bad\n",
        r"line 3: the rating is not a number \('good'\); 3 of 3 lines are invalid.*: write a number",
    ),
    "names in another language": (
        "utilisateur,livre,note\n1,2,3\n4,5,6\n",
        "--columns user=utilisateur,item=livre,rating=note",
    ),
    "a time in words": ("user,item,date\nann,x,yesterday\n", r"the time cannot be read \('yesterday'\).*2018-07-07"),
    "a date in another order": (
        "user,item,rating,date\na,x,3,07/08/2018\n",
        "line 2: the time cannot be read.*2018-07-07",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_name_the_line_and_the_fix(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "mine.csv", content)
    with pytest.raises(DatasetError, match=f"(?s){message}") as caught:
        read_ratings(path)
    assert str(caught.value).startswith(str(path))
    assert ";" in str(caught.value)  # what to do follows what is wrong


def test_what_is_not_there_or_not_known_is_refused_with_where_to_get_a_set(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nothing not found; download a set from .*`secemb data fetch ml-100k`"):
        read_ratings(tmp_path / "nothing")
    with pytest.raises(DatasetError, match=r"it contains no table, and not u\.data.*grouplens\.org"):
        read_ratings(tmp_path)
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(PLAIN)
    with pytest.raises(DatasetError, match=r"it contains one\.csv, two\.csv, and not"):
        read_ratings(tmp_path)
    with pytest.raises(DatasetError, match="no column 'who' for user; its columns are user, item, rating, time"):
        read_ratings(tmp_path / "one.csv", columns={"user": "who", "item": "item"})


JUNK = {
    "u1,i900,good": "the rating is not a number",
    "u1,i901,nan": "the rating is not a number",
    "u1,i902,": "no rating",
    "-4,i903,3": "not a user id",
    "u1,,3": "no item",
    "u1,i904": "too few fields",
    "u1,i905,3,4": "too many fields",
}


def test_junk_is_skipped_up_to_a_share_and_reported_by_reason_file_line_and_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item,rating\n" + MANY + "\n".join(JUNK) + "\n")
    with pytest.raises(DatasetError, match=r"line 402: .* 7 of 407 lines .* at most 0\.01 .* --junk 0\.02"):
        read_ratings(path)
    ratings = read_ratings(path, junk_share=0.02)
    assert ratings.values.size == 400
    assert "i900" not in ratings.catalogue.ids
    found = {fault.reason: (fault.count, fault.line, fault.value) for fault in ratings.report.faults}
    assert found == {
        "the rating is not a number": (2, 402, "good"),
        "no rating": (1, 404, ""),
        "not a user id": (1, 405, "-4"),
        "no item": (1, 406, ""),
        "too few fields": (1, 407, None),
        "too many fields": (1, 408, None),
    }
    assert f"mine: skipped 2, first {path}, line 402: the rating is not a number ('good')" in capsys.readouterr().err
    read_ratings(path, junk_share=0.02, quiet=True)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("junk", "line"), JUNK.items(), ids=JUNK)
def test_one_bad_line_in_hundreds_makes_no_set_unreadable(junk: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item,rating\n" + junk + "\n" + MANY)
    report = read_ratings(path).report
    assert [(fault.reason, fault.line) for fault in report.faults] == [(line, 2)]
    assert (report.lines, report.skipped) == (401, 1)


def test_a_column_that_may_hold_ratings_is_not_left_out_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item,mark (1-10)\nann,x,7\nbob,x,3\n")
    assert read_ratings(path).implicit
    assert "each line is read as a choice (implicit feedback); not used: mark (1-10)" in capsys.readouterr().err
    read_ratings(path, columns="user=user,item=item")
    assert not capsys.readouterr().err, "then it is as wished"
    path.write_text("who is it,what,mark\nann,x,7\n")
    with pytest.raises(DatasetError, match=r"--columns 'user=who is it,item=what,rating=mark'"):
        read_ratings(path)


def test_items_may_be_known_by_their_titles_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,Book Title,rating\nann,Emma,4\nbob,Emma,3\nann,Dracula,2\n")
    found = read_ratings(path)
    assert found.catalogue.ids == ("Emma", "Dracula")


def test_repeated_pairs_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item,rating\nann,x,1\nann,x,2\nann,x,3\nbob,x,4\n")
    ratings = read_ratings(path)
    assert rows(ratings) == [("ann", "x", 3.0), ("bob", "x", 4.0)]
    assert ratings.report.duplicates == 2
    assert "2 duplicate pairs of user and item: the last one counts" in capsys.readouterr().err


def test_a_line_number_counts_the_lines_inside_quotes(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('user,item,rating,note\nann,x,1,"a\nb\n\nc"\n\nbob,y,good,"d"\n')
    with pytest.raises(DatasetError, match="line 7: the rating is not a number"):
        read_ratings(path)


def test_frames_of_polars_and_pandas_are_read() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"user_id": ["ann", "bob", "bob"], "item_id": ["x", "y", "x"], "rating": [1, 5, 4]}
    for frame in (pl.DataFrame(columns), pandas.DataFrame(columns)):
        ratings = read_ratings(frame)
        assert rows(ratings) == ROWS
        assert ratings.name == "frame"
    frame = pandas.DataFrame(
        {"user": [1, 2, 2], "item": ["x", "y", "x"], "when": pandas.to_datetime([100, 200, 300], unit="s")}
    )
    ratings = read_ratings(frame, columns={"user": "user", "item": "item", "time": "when"})
    assert ratings.implicit
    assert ratings.times is not None
    assert ratings.times.tolist() == TIMES
    with pytest.raises(DatasetError, match="the frame, line 2: no item"):
        read_ratings(pandas.DataFrame({"user": [1, 2], "item": ["x", None]}))
    with pytest.raises(DatasetError, match="the frame has no rows"):
        read_ratings(pl.DataFrame({"user": [], "item": []}))


def test_a_directory_with_a_training_and_a_test_file_keeps_that_split(tmp_path: Path) -> None:
    folder = tmp_path / "gowalla"
    folder.mkdir()
    (folder / "train.txt").write_text("0 7 8 9\n1 7\n")
    (folder / "test.txt").write_text("0 5\n1 8 9\n2 \n")
    ratings = read_ratings(folder)
    assert ratings.name == "gowalla"
    assert ratings.implicit
    assert ratings.tested is not None
    assert [row[:2] for row, tested in zip(rows(ratings), ratings.tested, strict=True) if tested] == [
        ("0", "5"),
        ("1", "8"),
        ("1", "9"),
    ]


def test_titles_come_from_a_file_of_items(tmp_path: Path) -> None:
    (tmp_path / "mine.inter").write_text("user_id:token\titem_id:token\nann\tx\nann\tz\n")
    (tmp_path / "mine.item").write_text(
        "item_id:token\tmovie_title:token_seq\tclass:token_seq\nw\tDouble\tC\nx\tEx\tD\n"
    )
    for path in (tmp_path / "mine.inter", tmp_path):
        ratings = read_ratings(path)
        assert ratings.catalogue.ids == ("w", "x", "z")
        assert [ratings.catalogue.title_of(row) for row in range(3)] == ["Double", "Ex", None]
        assert ratings.catalogue.others == {"class": ("C", "D", "")}
        assert ratings.report.unlisted_items == 1
    (tmp_path / "names.jsonl").write_text("".join(json.dumps({"id": i, "title": t}) + "\n" for i, t in [("x", "Ix")]))
    assert read_ratings(tmp_path / "mine.inter", catalogue=tmp_path / "names.jsonl").catalogue.title_of(0) == "Ix"
    (tmp_path / "names.csv").write_text("a,b\nc,1\n")
    with pytest.raises(DatasetError, match="for example item_id,title"):
        read_ratings(tmp_path / "mine.inter", catalogue=tmp_path / "names.csv")
