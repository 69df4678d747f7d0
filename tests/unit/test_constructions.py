"""The constructions of the paper's ablation all read the same rows and reach the same sum."""

import numpy as np
import pytest

from secemb_lab.constructions import ABLATION, Construction, FullMatrix, Init, PathShared, Received, RowEncoded
from secemb_shared import row_access
from secemb_shared.dpf import default_backend
from secemb_shared.messages import RoundSpec, TaskSpec, codec

ITEMS, WIDTH, CAPACITY = 61, 5, 9


def a_round(layout: str) -> RoundSpec:
    tables, bins = {"direct": (1, 1), "binned": (3, 5)}[layout]
    task = TaskSpec(
        name="ablation",
        items=ITEMS,
        row_width=WIDTH,
        dense_size=0,
        capacity=CAPACITY,
        tables=tables,
        bins=bins,
        ring_bits=32,
        fraction_bits=16,
        bound=2**20,
        cohort=10,
        min_cohort=2,
    )
    return RoundSpec(task=task, number=1, model_version=0, model_digest=bytes(32))


@pytest.mark.parametrize("layout", ["direct", "binned"])
@pytest.mark.parametrize("construction", ABLATION)
def test_every_construction_reads_the_rows_and_reaches_the_plain_sum(
    construction: type[Construction], layout: str
) -> None:
    round_, rng = a_round(layout), np.random.default_rng(7)
    scheme = construction(round_, default_backend())
    tagged = row_access.tag_rows(round_, rng.normal(size=(ITEMS, WIDTH)).astype(np.float32))
    expected, shares = row_access.empty_sums(round_), [row_access.empty_sums(round_) for _ in range(2)]
    received: list[list[Received]] = [[], []]
    for _ in range(3):
        placement = round_.layout.place(rng.choice(ITEMS, 6, replace=False).astype(np.int64))
        payload = rng.integers(0, 2**32, (round_.task.geometry.slots, WIDTH), dtype=np.uint32)
        payload[placement.items < 0] = 0
        asked = scheme.ask(placement)
        answers = [scheme.answer(party, asked.session_id, asked.requests[party], tagged) for party in (0, 1)]
        if construction is not FullMatrix:
            words = [codec.decode_answer(round_, asked.session_id, party, answers[party]) for party in (0, 1)]
            items, rows = row_access.recover(round_, placement, (words[0], words[1]))
            assert np.array_equal(rows.view(np.uint32), tagged[items, :-1])
        else:
            assert answers[0] == tagged[:, :-1].tobytes()
        for party, update in enumerate(scheme.write(asked, payload)):
            received[party].append(Received(asked.session_id, asked.requests[party], update))
        items, rows_added = placement.collect(payload)
        expected[items] += rows_added
    for party in (0, 1):
        scheme.add(party, received[party], shares[party])
    assert np.array_equal(shares[0] + shares[1], expected)


def test_each_step_of_the_ablation_sends_less() -> None:
    round_ = a_round("direct")
    placement = round_.layout.place(np.arange(6, dtype=np.int64))
    payload = np.zeros((round_.task.geometry.slots, WIDTH), dtype=np.uint32)

    def uploaded(construction: type[Construction]) -> int:
        scheme = construction(round_, default_backend())
        asked = scheme.ask(placement)
        return sum(map(len, asked.requests)) + sum(map(len, scheme.write(asked, payload)))

    assert uploaded(Init) > uploaded(RowEncoded) > uploaded(PathShared)
