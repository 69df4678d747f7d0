"""The errors found in the paper: each one has evidence that exists, and those without a test elsewhere have it here."""

import ast
from pathlib import Path

import numpy as np
import pytest

from secemb_lab.paper.errata import ERRATA
from secemb_lab.paper.printed import printed
from secemb_lab.paper.protocols import breakpoints
from secemb_shared.dpf import RingArray, SessionKeys, default_backend, expand_roots
from secemb_shared.labels import Label
from secemb_tools.catalogues import CATALOGUES

ROOT = Path(__file__).parents[2]
LABEL = Label(bytes(32), 1, bytes(16))
SLOTS = 2000


def names_in(evidence: str) -> bool:
    """Tell whether a test or a page exists."""
    path, _, test = evidence.partition("::")
    file = ROOT / path
    if not file.is_file() or not test:
        return file.is_file()
    return test in {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("evidence", [one.evidence for one in ERRATA])
def test_the_evidence_exists(evidence: str) -> None:
    assert names_in(evidence)


def test_evidence_that_does_not_exist_is_noticed() -> None:
    assert not names_in("tests/unit/test_paths.py::test_the_left_child_is_the_right_one")
    assert not names_in("docs/nothing.md")


def test_a_word_within_the_limit_adds_any_value() -> None:
    """ConvertGen of β = 0 is the difference that any word is corrected by: what a word of zero adds, but for its sign.

    With a limit of 20 bits nearly no honest word fits, while the word zero fits and adds numbers up to half the ring.
    """
    backend, keys = default_backend(), SessionKeys.of(LABEL)
    roots = [expand_roots(LABEL, bytes([party]) * 16, SLOTS, backend) for party in (1, 2)]
    _, leaf0, leaf1 = backend.generate(keys, roots[0], roots[1], np.zeros(SLOTS, np.int64), 5)
    nothing: RingArray = np.zeros((SLOTS, 1), np.uint32)
    honest = backend.convert_gen(keys.convert, leaf0, leaf1, nothing)
    size = np.abs(honest.view(np.int32).astype(np.int64))
    assert np.mean(size < 2**20) < 0.01
    assert size.max() > 2**31 * 0.99
    assert abs(np.mean(size) / 2**30 - 1) < 0.1  # uniform: half of the largest on average


def test_the_download_of_ncf_on_yelp_is_not_what_its_ratio_says() -> None:
    whole, ratio, ours = (
        float(printed("tab:downcommucost", f"NCF / {row}", "Yelp") or 0)
        for row in ("Secure FedRec", "Reduction Ratio", "SecEmb")
    )
    assert whole / ratio == pytest.approx(0.164, abs=0.001)
    assert ours == printed("tab:upcommucost", "NCF / SecEmb", "Yelp") == 0.44


def test_secure_fedrec_leaves_out_the_bias_of_each_item() -> None:
    items, numbers = 93_386, float(printed("tab:paramsize", "MF / # Sparse", "Yelp") or 0)
    assert numbers == items * 65
    assert printed("tab:commucostsparse", "MF / General SecAgg", "Yelp") == round(2 * 4 * items * 65 / 1e6, 2)
    assert printed("tab:upcommucost", "MF / SecFedRec", "Yelp") == round(2 * 4 * items * 64 / 1e6, 2)


def test_three_breakpoints_do_not_follow_from_the_inequality() -> None:
    printed_, formula, false = {}, {}, set()
    for dimension in breakpoints.DIMENSIONS:
        for catalogue in CATALOGUES:
            place = dimension, catalogue.name
            printed_[place] = float(printed("tab:breakpoint", f"d={dimension}", catalogue.name) or 0)
            formula[place] = breakpoints.by_formula(catalogue.items, dimension)
            if abs(printed_[place] / formula[place] - 1) > 0.005:
                false.add(place)
    assert false == {(128, name) for name in ("ML10M", "ML25M", "Yelp")}
    assert all(printed_[128, one.name] == int(0.6 * one.items) for one in CATALOGUES[2:])
    assert [formula[128, one.name] for one in CATALOGUES[2:]] == [7496, 41460, 61275]


def test_ml10m_has_the_items_that_its_sizes_of_models_have() -> None:
    items = float(printed("tab:datastat", "ML10M", "items") or 0)
    assert printed("tab:paramsize", "MF / # Sparse", "ML10M") == items * 65
    assert items != 27_278


def test_fm_on_ml100k_leaves_out_its_dense_part() -> None:
    mf, fm, sparse = (
        float(printed(f"tab:{label}", f"{model} / SecEmb", "ML100K") or 0)
        for label, model in (("upcommucost", "MF"), ("upcommucost", "FM"), ("commucostsparse", "FM"))
    )
    dense = 2 * 4 * float(printed("tab:paramsize", "FM / # Dense", "ML100K") or 0) / 1e6
    assert round(mf + dense, 2) == sparse
    assert sparse > fm
