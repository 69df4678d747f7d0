"""Compressors of updates: what comes back, by definitions of their own, and how many bytes it takes."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.made_up_ratings import made_up_ratings

from secemb_lab.paper.compression.compressor import Compressor
from secemb_lab.paper.compression.full_shares import SecureFedRec
from secemb_lab.paper.compression.low_rank import CoLR, Svd
from secemb_lab.paper.compression.quantisers import Bit8Quant, TernQuant
from secemb_sdk.models import Floats
from secemb_sdk.models.update import Numbers
from secemb_sdk.round.session import SESSION_SEED_BYTES, SeededBytes
from secemb_shared.errors import MessageError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import secure_bytes
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.world import world_for
from secemb_tools.specification import build_task

ITEMS, WIDTH, RANK = 30, 7, 3
ALL: list[Compressor] = [Bit8Quant(), TernQuant(), Svd(RANK), CoLR(RANK), SecureFedRec()]
WITHOUT_CHANCE = [one for one in ALL if not isinstance(one, TernQuant)]


@cache
def a_task(items: int, width: int) -> TaskSpec:
    return build_task(
        name="small", items=items, row_width=width, dense_size=0, capacity=8, fraction_bits=16, bound=2**20, cohort=10
    )


def a_round(number: int = 1, *, items: int = ITEMS, width: int = WIDTH) -> RoundSpec:
    return RoundSpec(task=a_task(items, width), number=number, model_version=1, model_digest=bytes(32))


def an_update(seed: int = 1, rows: int = 9) -> Floats:
    random, update = np.random.default_rng(seed), np.zeros((ITEMS, WIDTH), dtype=np.float32)
    update[random.permutation(ITEMS)[:rows]] = random.standard_normal((rows, WIDTH))
    return update


def through(one: Compressor, update: Floats, *, number: int = 1, seed: int = 1) -> Numbers:
    random_bytes = SeededBytes(seed.to_bytes(SESSION_SEED_BYTES, "little"))
    return one.decompress(a_round(number), one.compress(a_round(number), update, random_bytes))


def dynamic_tree(code: str) -> float:
    """Read eight characters as the format is described: sign, zeros, a one, and a place in [0.1, 1]."""
    sign, rest = (-1 if code[0] == "1" else 1), code[1:]
    if "1" not in rest:
        return 1.0 if sign < 0 else 0.0
    zeros = rest.index("1")
    fraction = rest[zeros + 1 :]
    parts = 1 << len(fraction)
    place = int(fraction, 2) if fraction else 0
    ends = [0.1 + 0.9 * step / parts for step in (place, place + 1)]
    return sign * sum(ends) / 2 * math.pow(10, -zeros)


def test_eight_bits_hold_the_nearest_number_of_the_dynamic_tree() -> None:
    update = an_update()
    known = np.array([dynamic_tree(f"{code:08b}") for code in range(256)])
    largest = np.abs(update).max()
    nearest = known[np.abs(update[..., None] / largest - known).argmin(axis=-1)] * largest
    assert np.unique(known).size == 256
    np.testing.assert_allclose(through(Bit8Quant(), update), nearest, rtol=1e-6)


def test_every_byte_of_the_dynamic_tree_is_read_as_it_was_written() -> None:
    known = np.array([dynamic_tree(f"{code:08b}") for code in range(256)], dtype=np.float32)
    round_ = a_round(items=32, width=8)
    message = Bit8Quant().compress(round_, known.reshape(32, 8), secure_bytes)
    assert message == np.float32(1).tobytes() + bytes(range(256))


def test_a_ternary_number_is_zero_or_the_largest_with_its_own_sign() -> None:
    update = an_update()
    found, largest = through(TernQuant(), update), np.abs(update).max()
    assert set(np.unique(np.abs(found))) == {0.0, largest}
    assert np.all(found * update >= 0)
    assert np.array_equal(found[np.abs(update) == largest], update[np.abs(update) == largest])


def test_a_ternary_update_is_the_update_on_average() -> None:
    """By Bernstein's inequality a correct one fails with a chance below 10^−9, for all numbers together."""
    update, turns = an_update().astype(np.float64), 4000
    mean = sum(through(TernQuant(), update.astype(np.float32), seed=seed) for seed in range(turns)) / turns
    largest = np.abs(update).max()
    variance = np.abs(update) * (largest - np.abs(update))
    log = math.log(2 * update.size / 1e-9)
    width = np.sqrt(2 * variance * log / turns) + 2 * largest * log / (3 * turns)
    assert np.all(np.abs(mean - update) <= width)
    assert width.max() < 0.17 * largest  # narrow enough to see a wrong scale


def test_svd_is_the_nearest_update_of_its_rank() -> None:
    """The eigenvectors of GᵀG span it (Eckart and Young 1936)."""
    update = an_update().astype(np.float64)
    _, vectors = np.linalg.eigh(update.T @ update)
    largest = vectors[:, -RANK:]
    found = through(Svd(RANK), update.astype(np.float32))
    np.testing.assert_allclose(found, update @ largest @ largest.T, atol=1e-5)


def test_colr_is_what_one_step_of_a_moves_the_table() -> None:
    """The gradient by A of a loss ⟨G, Q + A·Bᵀ⟩ is G·B; a step of size one against it moves the table by G·B·Bᵀ."""
    update, colr = an_update(), CoLR(RANK)
    basis = colr.basis(a_round())
    by_a = [[sum(row[k] * basis[k, j] for k in range(WIDTH)) for j in range(RANK)] for row in update]
    np.testing.assert_allclose(through(colr, update), np.array(by_a) @ basis.T, atol=1e-5)
    np.testing.assert_allclose(basis.T @ basis, np.eye(RANK) * WIDTH / RANK, atol=1e-5)


def test_colr_is_the_update_on_average_over_rounds() -> None:
    """Each element's mean over 4,000 bases lies within 6.5 standard errors: a chance below 10^−7 for all of them."""
    update, turns = an_update(), 4000
    each = np.stack([through(CoLR(RANK), update, number=number) for number in range(turns)])
    error = each.std(axis=0) / math.sqrt(turns)
    assert np.all(np.abs(each.mean(axis=0) - update) <= 6.5 * error + 1e-6)


@pytest.mark.parametrize("one", [Svd(RANK), CoLR(RANK)], ids=lambda one: one.name)
def test_the_rank_is_exactly_the_one_asked_for(one: Compressor) -> None:
    assert np.linalg.matrix_rank(through(one, an_update()), tol=1e-4) == RANK


@pytest.mark.parametrize("one", [Svd(RANK), CoLR(RANK)], ids=lambda one: one.name)
def test_fewer_rows_than_the_rank_have_their_own_rank(one: Compressor) -> None:
    assert np.linalg.matrix_rank(through(one, an_update(rows=2)), tol=1e-4) == 2


def test_secure_fedrec_loses_nothing_but_what_fixed_point_does() -> None:
    update = an_update()
    assert np.array_equal(through(SecureFedRec(), update), np.rint(update.astype(np.float64) * 2**16) / 2**16)


def test_a_share_of_secure_fedrec_says_nothing_about_the_update() -> None:
    """One share is drawn without the update; the other hides it behind the first, which is another each time."""
    seeded = [SecureFedRec().compress(a_round(), an_update(seed), bytes) for seed in (1, 2)]
    drawn = [SecureFedRec().compress(a_round(), an_update(1), secure_bytes) for _ in range(2)]
    half = len(drawn[0]) // 2
    assert seeded[0][:half] == seeded[1][:half]
    assert drawn[0][:half] != drawn[1][:half]
    assert drawn[0][half:] != drawn[1][half:]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
@given(rows=st.integers(0, ITEMS), seed=st.integers(0, 2**32))
def test_a_message_has_the_bytes_that_are_counted_and_leaves_untouched_rows_zero(
    one: Compressor, rows: int, seed: int
) -> None:
    update = an_update(seed, rows)
    message = one.compress(a_round(), update, secure_bytes)
    assert len(message) == one.size(a_round())
    found = one.decompress(a_round(), message)
    assert found.shape == update.shape
    assert not found[~update.any(axis=1)].any()


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_message_of_another_length_is_refused(one: Compressor, change: int) -> None:
    message = one.compress(a_round(), an_update(), secure_bytes)
    with pytest.raises(MessageError, match=f"a message of {one.name} has"):
        one.decompress(a_round(), (message + b"\0")[: len(message) + change])


def can_be_added(one: Compressor) -> bool:
    """Tell whether the sum of two messages, number by number, is read as the sum of what each of them says."""
    round_, updates = a_round(), [an_update(1), an_update(2)]
    if isinstance(one, SecureFedRec):
        numbers: type[np.generic] = np.uint32
    else:
        numbers = np.float32 if isinstance(one, Svd | CoLR) else np.uint8
    sent = [one.compress(round_, update, secure_bytes) for update in updates]
    messages = [np.frombuffer(message, np.uint8) for message in sent]
    head = 4 if numbers is np.uint8 else 0  # the scale, which both would have to agree on
    total = messages[0].copy()
    total[head:] = (messages[0][head:].view(numbers) + messages[1][head:].view(numbers)).view(np.uint8)
    found = one.decompress(round_, np.minimum(total, 242).tobytes() if isinstance(one, TernQuant) else total.tobytes())
    return bool(np.allclose(found, sum(one.decompress(round_, message) for message in sent), atol=1e-3))


def test_secure_aggregation_can_add_messages_of_colr_but_not_those_of_svd_or_of_quantisers() -> None:
    """The paper calls all four compatible: servers that only see a sum can read it for CoLR alone."""
    assert [one.name for one in ALL if can_be_added(one)] == ["CoLR", "Secure FedRec"]


def trained(lossy: Compressor | None, way: str = PLAIN, *, rounds: int = 3) -> Engine:
    recipe = Recipe(model="mf", rounds=rounds, cohort=8, capacity=20)
    world = world_for(recipe, made_up_ratings(people=20, items=40, count=300), seed=1)
    engine = Engine(world, way=way, lossy=lossy)
    for _ in range(rounds):
        engine.step()
    return engine


def test_training_with_secure_fedrec_has_the_bits_of_secemb() -> None:
    assert trained(SecureFedRec()).model.digest == trained(None, PRIVATE).model.digest == trained(None).model.digest


@pytest.mark.parametrize("one", [Bit8Quant(), TernQuant(), Svd(2), CoLR(2)], ids=lambda one: one.name)
def test_a_lossy_run_is_another_and_the_same_each_time(one: Compressor) -> None:
    first = trained(one)
    assert first.counts.failed == 0
    assert first.model.digest == trained(one).model.digest != trained(None).model.digest


def test_only_a_plain_run_can_be_lossy() -> None:
    with pytest.raises(ValueError, match="only a plain run"):
        trained(Bit8Quant(), PRIVATE)
