"""The committed vectors are what the portable definition makes, and every backend agrees with them."""

import copy
import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.vectors import primitives, relays, sessions, specifications, sums, trees
from tests.vectors.refusals import Refusals
from tests.vectors.values import Case, Check

from secemb_lab.vectors import vectors
from secemb_shared import errors
from secemb_shared.dpf import Backend
from secemb_shared.dpf._native import Native
from secemb_shared.dpf._portable import Portable
from secemb_shared.kernel import instruction_sets
from secemb_shared.labels import Purpose
from secemb_shared.messages.spec import SUM_SIZES

HERE = Path(__file__).parent
FILES = {path.name: path.read_text(encoding="ascii") for path in sorted(HERE.glob("*.json"))}
LARGEST = 1_000_000  # bytes of all files together: they are meant to be read

CHECKS: dict[tuple[str, str], Check] = {
    ("labels", "cases"): primitives.check_label,
    ("prg", "sigma"): primitives.check_sigma,
    ("prg", "hash"): primitives.check_hash,
    ("prg", "stream"): primitives.check_stream,
    ("prg", "hide"): primitives.check_hide,
    ("permutation", "whole"): primitives.check_permutation,
    ("permutation", "sampled"): primitives.check_sampled_permutation,
    ("ring", "encode"): primitives.check_encode,
    ("ring", "refused"): primitives.check_refused_number,
    ("ring", "decode"): primitives.check_decode,
    ("ring", "budget"): primitives.check_budget,
    ("tags", "cases"): primitives.check_tag,
    ("paths", "cases"): trees.check_paths,
    ("convert", "cases"): trees.check_convert,
    ("specs", "tasks"): specifications.check_task,
    ("session", "rounds"): sessions.check_session,
    ("sums", "rounds"): sums.check_sum,
    ("short", "rounds"): sessions.check_session,
    ("short", "halves"): primitives.check_half,
    ("short", "elements"): primitives.check_packed,
    ("short", "refused"): specifications.check_refused,
    ("relay", "keys"): relays.check_key,
    ("relay", "sessions"): relays.check_session,
}


def document(name: str) -> Case:
    found: Case = json.loads(FILES[f"{name}.json"])
    return found


@pytest.fixture(params=["portable", *instruction_sets()])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "portable":
        yield Portable()
        return
    from secemb_shared import _kernel

    _kernel.select(request.param)
    try:
        yield Native()
    finally:
        _kernel.select(instruction_sets()[0])


def test_the_committed_files_are_what_the_portable_definition_makes_now() -> None:
    made = vectors.build()
    assert FILES.keys() == made.keys(), "run `make vectors`"
    changed = [name for name, text in made.items() if FILES[name] != text]
    assert changed == [], "the protocol has changed; if that is meant, run `make vectors` and say so in the changelog"


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for run in ("first", "second"):
        vectors.write(tmp_path / run)
        files = sorted((tmp_path / run).iterdir())
        digests.append([(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files])
    assert digests[0] == digests[1]


def test_the_files_stay_small_enough_to_read() -> None:
    assert sum(map(len, FILES.values())) < LARGEST


def test_every_part_of_every_file_has_a_check() -> None:
    parts = {
        (name.removesuffix(".json"), part)
        for name in FILES
        for part, value in json.loads(FILES[name]).items()
        if isinstance(value, list)
    }
    of_refusals = {("negative", part) for part in ("accepted", "holds", "refused", "slot_items", "slot_leaves")}
    assert parts == CHECKS.keys() | of_refusals
    assert {document(name.removesuffix(".json"))["protocol"] for name in FILES} == {"secemb/2"}


@pytest.mark.parametrize(("name", "part"), CHECKS)
def test_every_vector_holds_in_every_backend(name: str, part: str, backend: Backend) -> None:
    cases = document(name)[part]
    assert cases
    for case in cases:
        CHECKS[name, part](case, backend)


@pytest.mark.parametrize("part", ["accepted", "refused"])
def test_what_is_wrong_is_refused_with_the_named_error_and_nothing_else_is(part: str, backend: Backend) -> None:
    file = document("negative")
    refusals = Refusals(file, backend)
    for case in file[part]:
        assert ("error" in case) == (part == "refused")
        refusals.check(case)


def test_every_purpose_and_every_error_of_bytes_from_outside_has_a_vector() -> None:
    assert {case["purpose"] for case in document("labels")["cases"]} == {purpose.value for purpose in Purpose}
    named = {case["error"] for name in ("negative", "ring") for case in document(name)["refused"]}
    of_messages = {error.__name__ for error in errors.MessageError.__subclasses__()}
    assert named == of_messages | {"SpecError", "MacError", "RowTagError", "NotFiniteError", "OutOfRangeError"}


def test_every_kind_of_round_has_a_vector() -> None:
    texts = [round_["canonical"] for task in document("specs")["tasks"] for round_ in task["rounds"]]
    assert {json.loads(text)["kind"] for text in texts} == SUM_SIZES.keys()
    assert document("negative")["rounds"].keys() == SUM_SIZES.keys()
    sizes = {json.loads(case["round"])["kind"]: case["sum_size"] for case in document("sums")["rounds"]}
    assert sizes == {kind: size for kind, size in SUM_SIZES.items() if size}


# What a number may be rounded or compared with can change without any effect on the result.
WITHOUT_EFFECT = {"ring": {"bound", "cohort", "fraction_bits", "noise_tail", "ring_bits"}, "short": {"text"}}


def changed_cases(case: Any, skip: Collection[str] = ()) -> Iterator[Any]:
    """Yield the case with one value changed, for every value in it (of long lists, the first and the last)."""
    if isinstance(case, dict | list):
        keys = (
            [key for key in case if key not in skip] if isinstance(case, dict) else {0, len(case) - 1} if case else ()
        )
        for key in keys:
            for inner in changed_cases(case[key]):
                changed = copy.copy(case)
                changed[key] = inner
                yield changed
    elif isinstance(case, str):
        yield from changed_texts(case)
    else:
        yield (case or 0) + 1


def changed_texts(text: str) -> Iterator[str]:
    """Yield the text with its first or its last letter or digit changed."""
    at = [index for index, letter in enumerate(text) if letter.isalnum()]
    for index in {at[0], at[-1]} if at else ():
        yield text[:index] + ("1" if text[index] != "1" else "2") + text[index + 1 :]


@pytest.mark.parametrize(("name", "part"), CHECKS)
def test_a_value_that_is_changed_in_a_vector_is_noticed(name: str, part: str) -> None:
    check, cases = CHECKS[name, part], document(name)[part]
    for case in (cases[len(cases) // 2], cases[-1]):
        check(case, Portable())
        for changed in changed_cases(case, WITHOUT_EFFECT.get(name, ())):
            with pytest.raises((AssertionError, LookupError, ValueError, errors.SecEmbError)):
                check(changed, Portable())


class OneBitOff(Portable):
    """A backend with a fault in one operation: the last result has one bit too many."""

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def __getattribute__(self, name: str) -> Any:
        right = object.__getattribute__(self, name)
        if name == "_operation" or name != self._operation:
            return right

        def wrong(*arguments: Any, **options: Any) -> Any:
            result = right(*arguments, **options)
            array = arguments[-1] if result is None else result[-1] if isinstance(result, tuple) else result
            array.reshape(-1)[-1:] ^= array.dtype.type(1)
            return result

        return wrong


@pytest.mark.parametrize(
    ("operation", "name", "part"),
    [
        ("hash_blocks", "prg", "hash"),
        ("add_stream", "prg", "hide"),
        ("row_tags", "tags", "cases"),
        ("expand", "paths", "cases"),
        ("generate", "paths", "cases"),
        ("convert_gen", "convert", "cases"),
        ("accumulate", "convert", "cases"),
        ("answer", "session", "rounds"),
        ("add_stream", "sums", "rounds"),
    ],
)
def test_a_backend_that_is_one_bit_off_is_noticed(operation: str, name: str, part: str) -> None:
    with pytest.raises((AssertionError, errors.RowTagError)):
        CHECKS[name, part](document(name)[part][-1], OneBitOff(operation))


def test_a_refusal_that_is_changed_in_a_vector_is_noticed() -> None:
    file = document("negative")
    refusals = Refusals(file, Portable())
    for case in (*file["refused"], *file["accepted"]):
        with pytest.raises(AssertionError):
            refusals.check({**case, "error": "MessageError"})
