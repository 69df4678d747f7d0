"""Types of the C extension; see shared/native. Only `_native.py` calls it."""

from typing import Any

import numpy.typing as npt

Buffer = bytes | npt.NDArray[Any]

Sessions = tuple[int, Buffer, Buffer, Buffer, Buffer, int, int, int]
Table = tuple[Buffer, int, int, int]
Part = tuple[int, int, int, int]

def instruction_sets() -> list[str]: ...
def select(name: str, /) -> None: ...
def hash_blocks(key: Buffer, blocks: Buffer, out: Buffer, /) -> None: ...
def add_stream(key: Buffer, values: Buffer, element: int, negative: bool, /) -> None: ...
def generate(
    keys: Buffer,
    roots0: Buffer,
    roots1: Buffer,
    alpha: Buffer,
    slots: int,
    depth: int,
    left: Buffer,
    right: Buffer,
    leaf0: Buffer,
    leaf1: Buffer,
    /,
) -> None: ...
def convert_gen(
    key: Buffer,
    leaf0: Buffer,
    leaf1: Buffer,
    payload: Buffer,
    slots: int,
    width: int,
    element: int,
    words: Buffer,
    /,
) -> None: ...
def expand(sessions: Sessions, leaves: int, states: Buffer, /) -> None: ...
def answer(sessions: Sessions, table: Table, part: Part, rows: Buffer, columns: int, answers: Buffer, /) -> None: ...
def accumulate(
    sessions: Sessions,
    table: Table,
    part: Part,
    words: Buffer,
    width: int,
    element: int,
    sums: Buffer,
    slot_sums: Buffer | None = None,
    /,
) -> None: ...
def slot_sums(
    sessions: Sessions, leaves: int, words: Buffer, width: int, element: int, slot_sums: Buffer, /
) -> None: ...
def project(key: Buffer, values: Buffer, element: int, out: Buffer, /) -> None: ...
def row_tags(key: Buffer, rows: Buffer, items: Buffer, width: int, tags: Buffer, /) -> None: ...
def leaf_hashes(key: Buffer, nodes: Buffer, leaves: Buffer, hashes: Buffer, /) -> None: ...
def answer_checked(
    sessions: Sessions,
    table: Table,
    part: Part,
    rows: Buffer,
    columns: int,
    checks: tuple[Buffer, Buffer, Buffer, int],
    answers: Buffer,
    fingerprints: Buffer,
    /,
) -> None: ...
def judge_proposals(words: Buffer, bits: int, slope: int, start: int, values: Buffer, verdicts: Buffer, /) -> None: ...
def permute(key: Buffer, items: int, backwards: bool, values: Buffer, /) -> None: ...
def match(choices: Buffer, each: int, slots: int, slot_of: Buffer, /) -> None: ...
