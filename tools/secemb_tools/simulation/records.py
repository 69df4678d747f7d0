"""What each rating of a device adds, cut one by one, all at once: for simulations, where one after another is slow."""

import numpy as np

from secemb_sdk.models import Floats, Model, Ratings
from secemb_sdk.models.clipping import Doubles
from secemb_sdk.models.errors import ModelError
from secemb_sdk.models.torch import RatingModel
from secemb_shared.privacy import clip_to_steps


def cut_each(
    model: Model, rows: Floats, dense: Floats, private: Floats, ratings: Ratings, *, limit: int, fraction_bits: int
) -> tuple[Doubles, Doubles]:
    """Return what a device uploads: each rating's gradient cut to the limit, by row, and the dense parts added up."""
    if not isinstance(model, RatingModel):
        raise ModelError("what each rating adds is simulated for models of ratings in torch")
    each = zip(*model.gradients_of_each(rows, dense, private, ratings), strict=True)
    cut = [clip_to_steps([row, shared], limit=limit, fraction_bits=fraction_bits) for row, shared in each]
    by_row, by_dense = np.stack([one[0] for one in cut]), np.sum([one[1] for one in cut], axis=0)
    return by_row / 2.0**fraction_bits, by_dense / 2.0**fraction_bits
