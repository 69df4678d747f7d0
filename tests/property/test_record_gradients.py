"""Gradients of many ratings at once: each line follows from its own rating alone, to the last bit.

Where the unit of privacy is a record, a bit that depended on the other ratings would be outside the promise.
"""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secemb_sdk.models import Floats, MatrixFactorisation, Ratings
from secemb_sdk.models.interface import RecordModel

torch = pytest.importorskip("secemb_sdk.models.torch")

ITEMS, MOST = 400, 130
FEATURES = np.random.default_rng(1).integers(0, 2, (ITEMS, 21), dtype=np.uint8)


Make = Callable[[int], RecordModel]
Parts = tuple[Floats, Floats, Floats, Ratings]
MAKES: dict[str, Make] = {
    "mf": lambda dimension: MatrixFactorisation(dimension=dimension),
    "ncf": lambda dimension: torch.NeuralCollaborativeFiltering(dimension=dimension, dense_penalty=0.3),
    "fm": lambda dimension: torch.FactorisationMachine(
        user_features=FEATURES[0], item_features=FEATURES.__getitem__, dimension=dimension
    ),
    "deepfm": lambda dimension: torch.DeepFactorisationMachine(
        user_features=FEATURES[0], item_features=FEATURES.__getitem__, dimension=dimension
    ),
}
DIMENSIONS = {"mf": (3, 16, 64, 65), "ncf": (2, 8, 16, 64), "fm": (3, 16, 64), "deepfm": (2, 5, 8)}


def parts_of(model: RecordModel, random: np.random.Generator, count: int) -> Parts:
    """Return rows, dense part, private part and ratings of this many items."""
    sizes = (count, model.row_width), (model.dense_size,), (model.private_size,)
    rows, dense, private = (
        random.normal(0, random.choice([0.01, 0.3, 2.0]), size).astype(np.float32) for size in sizes
    )
    items = random.choice(ITEMS, count, replace=False)
    return rows, dense, private, Ratings(items, random.integers(1, 6, count).astype(np.float32))


def lines(model: RecordModel, parts: Parts, chosen: np.ndarray) -> np.ndarray:
    """Return the gradients of the chosen ratings, in their order, found together."""
    rows, dense, private, ratings = parts
    found = model.record_gradients(rows[chosen], dense, private, Ratings(ratings.items[chosen], ratings.values[chosen]))
    return np.concatenate(found, axis=1).view(np.uint32)  # bits


def companies(random: np.random.Generator, count: int) -> list[np.ndarray]:
    """Return sets of ratings that some are looked at with: fewer, others before, others behind, another order."""
    everybody = np.arange(count)
    some = [random.permutation(count)[: random.integers(1, count + 1)] for _ in range(4)]
    return [random.permutation(count), everybody[: count // 2 + 1], everybody[count // 3 :], everybody[::-1], *some]


def depends_on_others(model: RecordModel, seed: int, count: int) -> bool:
    """Tell whether a line has other bits alone, or in other company, than among all."""
    random = np.random.default_rng(seed)
    parts = parts_of(model, random, count)
    among_all = lines(model, parts, np.arange(count))
    chosen = [*companies(random, count), *(np.array([place]) for place in random.permutation(count)[:10])]
    return any(not np.array_equal(lines(model, parts, some), among_all[some]) for some in chosen)


@pytest.mark.parametrize(("name", "dimension"), [(name, size) for name, sizes in DIMENSIONS.items() for size in sizes])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, MOST))
def test_no_bit_of_a_line_depends_on_the_other_ratings(name: str, dimension: int, seed: int, count: int) -> None:
    assert not depends_on_others(MAKES[name](dimension), seed, count)


@pytest.mark.parametrize("count", range(1, 70))
def test_no_bit_depends_on_how_many_ratings_there_are(count: int) -> None:
    for make in MAKES.values():
        assert not depends_on_others(make(8), count, count)


def test_a_product_by_blas_would_have_been_noticed() -> None:
    with patch("secemb_sdk.models.torch.collaborative.multiply", np.matmul):
        assert any(depends_on_others(MAKES["ncf"](64), seed, 60) for seed in range(20))


def test_a_sum_over_all_ratings_would_have_been_noticed() -> None:
    def shifted(rows: Floats, matrix: Floats) -> Floats:
        product: Floats = rows @ matrix + np.float32(1e-7) * rows.sum()
        return product

    with patch("secemb_sdk.models.torch.factorisation_machine.multiply", shifted):
        assert depends_on_others(MAKES["fm"](8), 1, 20)


@pytest.mark.parametrize("name", MAKES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_formulas_agree_with_the_gradients_of_one_rating(name: str, seed: int) -> None:
    """Those of models in torch are autograd's."""
    model, random = MAKES[name](8), np.random.default_rng(seed)
    rows, dense, private, ratings = parts_of(model, random, 6)
    found = model.record_gradients(rows, dense, private, ratings)
    for place in range(6):
        one = slice(place, place + 1)
        alone = model.gradients(rows[one], dense, private, Ratings(ratings.items[one], ratings.values[one]))
        for many, expected in zip(found, (alone.rows[0], alone.dense), strict=True):
            np.testing.assert_allclose(many[place], expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max(initial=0))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
def test_matrix_factorisation_gives_the_same_gradients_for_many_ratings_as_for_one(seed: int, count: int) -> None:
    model = MatrixFactorisation(dimension=4)
    rows, dense, private, ratings = parts_of(model, np.random.default_rng(seed), count)
    together, _ = model.record_gradients(rows, dense, private, ratings)
    for place in range(count):
        one = slice(place, place + 1)
        alone = model.gradients(rows[one], dense, private, Ratings(ratings.items[one], ratings.values[one]))
        assert np.array_equal(alone.rows, together[one])
