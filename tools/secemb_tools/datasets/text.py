"""Numbered lines of a text file: plain, gzip or zstd; UTF-8, UTF-16 or Latin-1; with or without a BOM."""

import gzip
import zlib
from pathlib import Path

import polars as pl

from secemb_tools.errors import DatasetError

PARQUET, GZIP, ZSTD = b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_ARCHIVES = {
    b"PK\x03\x04": "a zip archive or a spreadsheet; unpack it, or save the sheet as CSV",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"BZh": "packed with bzip2; unpack it, or use gzip or zstd",
    b"\xfd7zXZ": "packed with xz; unpack it, or use gzip or zstd",
    b"\x80\x04": "a Python pickle, which could run any code; save the frame as CSV or Parquet",
    b"\x80\x05": "a Python pickle, which could run any code; save the frame as CSV or Parquet",
}
_HEAD = 4096  # bytes that determine a file's format
_COMMENTS = 100  # maximum number of lines before the table that begin with # or %


def file_head(path: Path) -> bytes:
    """Return the first bytes of a file, which must exist and not be empty."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        raise DatasetError(f"{path} does not exist; check the path") from None
    except IsADirectoryError:
        raise DatasetError(f"{path} is a directory; name the file in it") from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened ({error.strerror}); check its permissions") from None
    if not head:
        raise DatasetError(f"{path} is empty: no ratings; give a file with the columns user, item and rating")
    return head


def read_lines(path: Path) -> pl.DataFrame:
    """Return the lines of a file that are not blank: `line`, from 1, and `text`."""
    head = file_head(path)
    for magic, words in _ARCHIVES.items():
        if head.startswith(magic):
            raise DatasetError(f"{path} is {words}")
    if b"\0" in head and not head.startswith((GZIP, ZSTD, *_UTF16)):
        raise DatasetError(f"{path} is a binary file; give CSV or another text table, JSON lines or Parquet")
    lines = _numbered(path, head)
    if not lines.height:
        raise DatasetError(
            f"{path} has only blank lines or comments: no ratings; give a file with the columns user, item and rating"
        )
    if lines["text"].head(100).str.contains("\0", literal=True).any():
        raise DatasetError(f"{path} contains binary data; give CSV or another text table, JSON lines or Parquet")
    return lines


def _numbered(path: Path, head: bytes) -> pl.DataFrame:
    source: Path | bytes = path
    if head.startswith(_UTF16):
        source = path.read_bytes().decode("utf-16", errors="replace").encode()
    try:
        found = pl.read_lines(source, name="text", glob=False)
    except (pl.exceptions.PolarsError, OSError):  # not UTF-8, or corrupted
        found = pl.read_lines(_unpack(path, head).decode("latin-1").encode(), name="text")
    if found.height == 1 and "\r" in found.item():  # line ends of classic Mac OS
        found = pl.DataFrame({"text": found.item().splitlines()})
    text = pl.col("text").str.strip_prefix("\ufeff").str.strip_chars_end("\r")
    lines = found.with_row_index("line", offset=1).with_columns(text).filter(pl.col("text").str.contains(r"\S"))
    comments = lines["text"].head(_COMMENTS).str.contains(r"^\s*[#%]")
    return lines.slice(comments.arg_min() or 0) if not comments.all() else lines.clear()


def _unpack(path: Path, head: bytes) -> bytes:
    """Return the bytes of a file that is not UTF-8."""
    if head.startswith(ZSTD):
        raise DatasetError(f"{path} is corrupted or not UTF-8; unpack it with `zstd -d` and give the unpacked file")
    raw = path.read_bytes()
    if not head.startswith(GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error):
        raise DatasetError(f"{path} is truncated or corrupted; download or compress it again") from None
