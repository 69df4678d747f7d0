"""Row widths and dense sizes are those of the paper's parameter table (appendix, "Hyperparameters")."""

from dataclasses import dataclass

import numpy as np
import pytest

from secemb_sdk.models import MatrixFactorisation, Model
from secemb_sdk.models.torch import (
    DeepFactorisationMachine,
    FactorisationMachine,
    NeuralCollaborativeFiltering,
    TorchMatrixFactorisation,
)


@dataclass(frozen=True)
class Column:
    """One rating set of the paper: its sizes, and the sizes of the four models there."""

    items: int
    user_features: int
    item_features: int
    ncf_dimension: int
    sparse: tuple[int, int, int, int]  # MF, NCF, FM, DeepFM
    dense: tuple[int, int, int, int]

    def models(self) -> list[Model]:
        person = np.zeros(self.user_features, np.uint8)
        lookup = np.zeros((1, self.item_features), np.uint8).__getitem__
        return [
            TorchMatrixFactorisation(dimension=64),
            NeuralCollaborativeFiltering(dimension=self.ncf_dimension),
            FactorisationMachine(user_features=person, item_features=lookup, dimension=64),
            DeepFactorisationMachine(user_features=person, item_features=lookup, dimension=64),
        ]


PAPER = {
    "ML100K": Column(1_682, 84, 19, 16, (109_330, 55_506, 109_330, 109_330), (0, 688, 6_696, 1_761_065)),
    "ML1M": Column(3_883, 30, 18, 16, (252_395, 128_139, 252_395, 252_395), (0, 688, 3_121, 856_370)),
    # The paper has 694,256 for FM and DeepFM: two digits changed places, 10,681 rows of 65 are 694,265 as for MF.
    "ML10M": Column(10_681, 0, 20, 24, (694_265, 523_369, 694_265, 694_265), (0, 1_512, 1_301, 395_798)),
    "ML25M": Column(62_423, 0, 20, 24, (4_057_495, 3_058_727, 4_057_495, 4_057_495), (0, 1_512, 1_301, 395_798)),
    "Yelp": Column(93_386, 0, 16, 20, (6_070_090, 3_828_826, 6_070_090, 6_070_090), (0, 1_060, 1_041, 330_002)),
}


@pytest.mark.parametrize("column", PAPER.values(), ids=PAPER)
def test_rows_and_dense_parts_are_as_large_as_in_the_paper(column: Column) -> None:
    models = column.models()
    assert tuple(column.items * model.row_width for model in models) == column.sparse
    assert tuple(model.dense_size for model in models) == column.dense


@pytest.mark.parametrize("column", PAPER.values(), ids=PAPER)
def test_the_private_part_is_a_row_of_the_person(column: Column) -> None:
    assert [model.private_size for model in column.models()] == [65, 2 * column.ncf_dimension + 1, 65, 65]


def test_both_matrix_factorisations_have_the_same_sizes() -> None:
    by_hand, by_torch = MatrixFactorisation(), TorchMatrixFactorisation()
    assert (by_hand.row_width, by_hand.dense_size, by_hand.private_size) == (65, 0, 65)
    assert (by_torch.row_width, by_torch.dense_size, by_torch.private_size) == (65, 0, 65)
