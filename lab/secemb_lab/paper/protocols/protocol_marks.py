"""The table that compares protocols by their properties: each mark follows from a test of this repository, by name."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.printed import printed
from secemb_tools.errors import OperationError

TESTS = Path(__file__).parents[4] / "tests"
YES, NO, PARTLY = "yes", "no", "partly"
SECURE, DOWNLOAD, UPLOAD, REDUCED, LOSSLESS = (
    "secure FL training",
    "reduced model download",
    "reduced gradient transmission",
    "operation on reduced model",
    "lossless",
)
_LEAKS, _SAME = "unit/test_paper_leaks.py", "unit/test_paper_comparison.py"
_COMPRESSED, _KVSAGG = "unit/test_paper_compressors.py", "unit/test_paper_kvsagg.py"
_WHOLE = f"{_SAME}::test_a_protocol_that_answers_no_reads_leaves_the_whole_model_to_download"
_SHORTER = f"{_SAME}::test_sparse_protocols_upload_less_than_the_update"
_COUNTED = f"{_SAME}::test_compressed_updates_are_shorter_than_the_update"
_ADDED = f"{_COMPRESSED}::test_secure_aggregation_can_add_messages_of_colr_but_not_those_of_svd_or_of_quantisers"
_LOSSY = f"{_COMPRESSED}::test_a_lossy_run_is_another_and_the_same_each_time"
_EXACT = f"{_LEAKS}::test_secaggmask_and_topksecagg_sum_exactly"
_NOT_ADDED = (
    "Messages of two users cannot be added, so secure aggregation has to sum what they stand for, and then nothing is "
    "saved; without it the server reads each update."
)
_EXACTLY = (
    "Its sum of embedding updates is exact, because what is left out is zero; what loses something is the choice of "
    "the largest gradients, which its authors put before it and embeddings do not need."
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A property of a protocol, and the test that proves it: file::function under tests."""

    value: str
    test: str
    note: str = ""


MARKS: dict[tuple[str, str], Mark] = {
    ("Secure FedRec", SECURE): Mark(YES, f"{_COMPRESSED}::test_a_share_of_secure_fedrec_says_nothing_about_the_update"),
    ("Secure FedRec", DOWNLOAD): Mark(NO, f"{_SAME}::test_a_device_of_secure_fedrec_downloads_the_whole_table"),
    ("Secure FedRec", UPLOAD): Mark(NO, f"{_SAME}::test_a_device_of_secure_fedrec_uploads_two_whole_shares"),
    ("Secure FedRec", REDUCED): Mark(NO, f"{_SAME}::test_a_device_of_secure_fedrec_downloads_the_whole_table"),
    ("Secure FedRec", LOSSLESS): Mark(YES, f"{_COMPRESSED}::test_training_with_secure_fedrec_has_the_bits_of_secemb"),
    ("SecAggMask", SECURE): Mark(NO, f"{_LEAKS}::test_secaggmask_shows_values_to_its_server"),
    ("TopkSecAgg", SECURE): Mark(NO, f"{_LEAKS}::test_topksecagg_shows_items_to_its_server"),
    ("Kvsagg", SECURE): Mark(PARTLY, f"{_LEAKS}::test_kvsagg_shows_how_many_users_each_item_has"),
    **{(name, DOWNLOAD): Mark(NO, _WHOLE) for name in ("SecAggMask", "TopkSecAgg", "Kvsagg")},
    **{(name, UPLOAD): Mark(YES, _SHORTER) for name in ("SecAggMask", "TopkSecAgg", "Kvsagg")},
    **{(name, REDUCED): Mark(NO, _WHOLE) for name in ("SecAggMask", "TopkSecAgg", "Kvsagg")},
    **{(name, LOSSLESS): Mark(YES, _EXACT, _EXACTLY) for name in ("SecAggMask", "TopkSecAgg")},
    ("Kvsagg", LOSSLESS): Mark(PARTLY, f"{_KVSAGG}::test_kvsagg_fails_as_often_as_the_theory_says"),
    **{(name, SECURE): Mark(NO, _ADDED, _NOT_ADDED) for name in ("Bit8Quant", "TernQuant", "SVD")},
    ("CoLR", SECURE): Mark(YES, _ADDED),
    **{(name, DOWNLOAD): Mark(NO, _WHOLE) for name in ("Bit8Quant", "TernQuant", "SVD")},
    ("CoLR", DOWNLOAD): Mark(YES, _ADDED),
    **{(name, UPLOAD): Mark(YES, _COUNTED) for name in ("Bit8Quant", "TernQuant", "SVD", "CoLR")},
    **{(name, REDUCED): Mark(NO, _WHOLE) for name in ("Bit8Quant", "TernQuant", "SVD", "CoLR")},
    **{(name, LOSSLESS): Mark(NO, _LOSSY) for name in ("Bit8Quant", "TernQuant", "SVD", "CoLR")},
    ("SecEmb", SECURE): Mark(YES, f"{_LEAKS}::test_secemb_hides_items_from_each_server"),
    ("SecEmb", DOWNLOAD): Mark(YES, f"{_SAME}::test_a_device_of_secemb_moves_less_than_the_table_in_both_directions"),
    ("SecEmb", UPLOAD): Mark(YES, f"{_SAME}::test_a_device_of_secemb_moves_less_than_the_table_in_both_directions"),
    ("SecEmb", REDUCED): Mark(YES, f"{_SAME}::test_a_device_of_secemb_trains_on_its_own_rows_alone"),
    ("SecEmb", LOSSLESS): Mark(YES, f"{_SAME}::test_the_sum_of_secemb_is_exact"),
}


def missing_tests() -> list[str]:
    """Return the tests that a mark names and that do not exist."""
    return sorted({mark.test for mark in MARKS.values() if not _exists(mark.test)})


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return name in _tests_of(TESTS / file)


@cache
def _tests_of(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@table("protocols", title="Comparison among protocols", night_seconds=1)
def comparison(settings: Settings, progress: Progress) -> Body:
    """Show the marks, after checking that their tests exist."""
    if missing := missing_tests():
        raise OperationError(f"a mark of the table of protocols rests on a test that does not exist: {missing[0]}")
    return Body(
        caption="Properties of protocols. Each mark follows from a test; if the test is renamed or deleted, this table "
        "cannot be made.",
        cells=[*_cells()],
    )


def _cells() -> Iterator[Cell]:
    columns = (SECURE, DOWNLOAD, UPLOAD, REDUCED, LOSSLESS)
    for name in dict.fromkeys(protocol for protocol, _ in MARKS):
        for column in columns:
            mark = MARKS[name, column]
            yield Cell(
                row=name, column=column, ours=mark.value, paper=printed("tab:compfl", name, column), note=mark.note
            )
