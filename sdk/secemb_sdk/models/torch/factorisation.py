"""Biased matrix factorisation in torch: what the hand-written gradients of the base install are compared with."""

from torch import Tensor

from secemb_sdk.models.factorisation import MIDDLE, SCALE
from secemb_sdk.models.torch.base import Tensors
from secemb_sdk.models.torch.rating import RatingModel


class TorchMatrixFactorisation(RatingModel):
    """The same model as `MatrixFactorisation`, with autograd."""

    def __init__(
        self, *, dimension: int = 64, penalty: float = 0.1, middle: float = MIDDLE, scale: float = SCALE
    ) -> None:
        shapes = {"vector": (dimension,), "bias": (1,)}
        super().__init__(row_width=dimension + 1, private=shapes, private_scale=scale, penalty=penalty)
        self._middle = middle

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        return rows[:, :-1] @ private["vector"] + rows[:, -1] + (self._middle + private["bias"])
