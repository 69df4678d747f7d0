"""Factorisation machines (Rendle 2010), plain and with a network over the same vectors (DeepFM, Guo et al. 2017)."""

import numpy as np
import torch
from torch import Tensor

from secemb_sdk.models.factorisation import SCALE
from secemb_sdk.models.interface import FeatureLookup, Features, Floats, Ratings
from secemb_sdk.models.ridge import Penalties
from secemb_sdk.models.torch.base import Shapes, Tensors
from secemb_sdk.models.torch.rating import Arrays, Product, RecordRatingModel, Slopes, multiply, outer
from secemb_shared.messages.spec import SQUARED
from secemb_shared.randomness import Indices


class FactorisationMachine(RecordRatingModel):
    """FM with binary features."""

    fit_steps = 1

    def __init__(
        self,
        *,
        user_features: Features,  # (features,), ones and zeros
        item_features: FeatureLookup,
        dimension: int = 64,
        loss: str = SQUARED,
        penalty: float = Penalties.rating,
        person_penalty: float = Penalties.person,
        bias_penalty: float = Penalties.bias,
        dense_penalty: float = 1.0,
        scale: float = SCALE,
    ) -> None:
        self._user_features, self._item_features = user_features, item_features
        self._features = user_features.size + item_features(np.empty(0, np.int64)).shape[1]
        super().__init__(
            row_width=dimension + 1,
            private={"vector": (dimension,), "bias": (1,)},
            dense={
                "vectors": (self._features, dimension),
                "weights": (self._features,),
                "bias": (1,),
                **self._layers(dimension),
            },
            private_scale=scale,
            loss=loss,
            penalty=penalty,
            person_penalty=person_penalty,
            bias_penalty=bias_penalty,
            dense_penalty=dense_penalty,
        )

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        return self._predict(rows, dense, private, torch.from_numpy(self._look_up(items.numpy())).to(rows.dtype))

    def _predict(self, rows: Tensor, dense: Tensors, private: Tensors, set_: Tensor) -> Tensor:
        linear = set_ @ dense["weights"] + rows[:, -1] + (dense["bias"] + private["bias"])
        vectors, own = rows[:, :-1], private["vector"]
        total = set_ @ dense["vectors"] + vectors + own
        squares = set_ @ dense["vectors"].square() + vectors.square() + own.square()
        # The square of the sum minus the sum of squares counts every pair twice.
        return linear + (total.square() - squares).sum(dim=1) / 2

    def _linearise(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> tuple[Floats, Floats]:
        """Return the linearisation in closed form: the slope by the person's vector is the sum of all other vectors."""
        parts = self.named_arrays(dense, private)
        scores, total = self._score(rows, *parts, self._look_up(items), product=np.matmul)
        others = total - parts[1]["vector"]
        return scores[:, 0], np.concatenate([others, np.ones((len(rows), 1), np.float32)], axis=1)

    def record_slopes(self, rows: Floats, dense: Arrays, private: Arrays, ratings: Ratings) -> Slopes:
        """Return the gradients of each squared error.

        With t the sum of all active vectors, a prediction's gradient is t − v for a vector v and 1 for a bias.
        """
        known = self._look_up(ratings.items)
        scores, total = self._score(rows, dense, private, known)
        return self._machine_slopes(rows, dense, known, total, 2 * (scores - ratings.values[:, np.newaxis]))

    def _machine_slopes(
        self, rows: Floats, dense: Arrays, known: Features, total: Floats, slopes: Floats
    ) -> tuple[list[Floats], list[Floats]]:
        by_vectors = np.zeros((len(rows), *dense["vectors"].shape), np.float32)
        rating, feature = known.nonzero()  # a few in a hundred
        by_vectors[rating, feature] = slopes[rating] * (total[rating] - dense["vectors"][feature])
        return [slopes * (total - rows[:, :-1]), slopes], [by_vectors, slopes * known, slopes]

    def _score(
        self, rows: Floats, dense: Arrays, private: Arrays, known: Features, *, product: Product | None = None
    ) -> tuple[Floats, Floats]:
        """Return the predicted ratings (n, 1) and the sums of active vectors (n, dimension), each row independently."""
        product = product or multiply
        set_, vectors, own = known.astype(np.float32), rows[:, :-1], private["vector"]
        linear = product(set_, dense["weights"][:, np.newaxis]) + rows[:, -1:]
        total = product(set_, dense["vectors"]) + vectors + own
        squares = product(set_, np.square(dense["vectors"])) + np.square(vectors) + np.square(own)
        pairs = (np.square(total) - squares).sum(axis=1, keepdims=True) / 2
        return linear + (dense["bias"] + private["bias"]) + pairs, total

    def _look_up(self, items: Indices) -> Features:
        """Return which features are set for this person with each of the items, shape (items, features)."""
        of_items = self._item_features(items)
        of_person = np.broadcast_to(self._user_features, (len(of_items), self._user_features.size))
        return np.concatenate([of_person, of_items], axis=1)

    def _layers(self, dimension: int) -> Shapes:
        """Return the shapes that a subclass adds to the dense part."""
        return {}


class DeepFactorisationMachine(FactorisationMachine):
    """DeepFM with binary features and the layers of the paper."""

    fit_steps = 2

    def _predict(self, rows: Tensor, dense: Tensors, private: Tensors, set_: Tensor) -> Tensor:
        _, hidden = self._hidden(rows, dense, private, set_)
        return super()._predict(rows, dense, private, set_) + hidden @ dense["output"] + dense["output_bias"]

    def _hidden(self, rows: Tensor, dense: Tensors, private: Tensors, set_: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of both layers of the network."""
        first = self._first_layer(rows, dense, private, set_)
        first = _activate(first, dense["first_scale"], dense["first_shift"])
        second = first @ dense["second"] + dense["second_bias"]
        return first, _activate(second, dense["second_scale"], dense["second_shift"])

    def _linearise(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> tuple[Floats, Floats]:
        """Return the linearisation in closed form: the machine's, and back through the layers of active units."""
        scores, slopes = super()._linearise(rows, dense, private, items)
        parts, set_ = self.named(torch.tensor(dense), torch.tensor(private)), torch.tensor(self._look_up(items))
        first, second = self._hidden(torch.tensor(rows), *parts, set_.to(torch.float32))
        by_second = (second > 0) * (1 + parts[0]["second_scale"]) * parts[0]["output"]
        by_first = (first > 0) * (1 + parts[0]["first_scale"]) * (by_second @ parts[0]["second"].T)
        slopes[:, :-1] += (by_first @ parts[0]["first"][0].T).numpy()
        scores += (second @ parts[0]["output"] + parts[0]["output_bias"]).numpy()
        return scores, slopes

    def _first_layer(self, rows: Tensor, dense: Tensors, private: Tensors, set_: Tensor) -> Tensor:
        own, item, features = torch.split(dense["first"], [1, 1, self._features])
        says = torch.bmm(dense["vectors"].unsqueeze(1), features).squeeze(1)  # by feature and unit
        return set_ @ says + rows[:, :-1] @ item[0] + private["vector"] @ own[0] + dense["first_bias"]

    def record_slopes(self, rows: Floats, dense: Arrays, private: Arrays, ratings: Ratings) -> Slopes:
        """Return the gradients of each squared error: those of the machine, and those back through the network."""
        known, vectors = self._look_up(ratings.items), rows[:, :-1]
        rating, feature = known.nonzero()
        (own, item), features = dense["first"][:2], dense["first"][2:]
        says = np.einsum("fj,fjk->fk", dense["vectors"], features)
        from_person = multiply(private["vector"][np.newaxis], own) + dense["first_bias"]
        summed = multiply(known.astype(np.float32), says) + multiply(vectors, item) + from_person
        first = np.maximum(summed * (1 + dense["first_scale"]) + dense["first_shift"], 0)
        summed_again = multiply(first, dense["second"]) + dense["second_bias"]
        second = np.maximum(summed_again * (1 + dense["second_scale"]) + dense["second_shift"], 0)

        scores, total = self._score(rows, dense, private, known)
        scores += multiply(second, dense["output"][:, np.newaxis]) + dense["output_bias"]
        slopes = 2 * (scores - ratings.values[:, np.newaxis])
        by_row, by_dense = self._machine_slopes(rows, dense, known, total, slopes)
        by_second = slopes * dense["output"] * (second > 0)
        by_sum_again = by_second * (1 + dense["second_scale"])
        by_first = multiply(by_sum_again, dense["second"].T) * (first > 0)
        by_sum = by_first * (1 + dense["first_scale"])

        by_row[0] += multiply(by_sum, item.T)
        by_dense[0][rating, feature] += np.einsum("njk,nk->nj", features[feature], by_sum[rating])
        by_layer = np.zeros((len(rows), *dense["first"].shape), np.float32)
        by_layer[:, 0] = private["vector"][:, np.newaxis] * by_sum[:, np.newaxis]
        by_layer[:, 1] = outer(vectors, by_sum)
        by_layer[rating, feature + 2] = outer(dense["vectors"][feature], by_sum[rating])
        by_dense += [by_layer, by_sum, by_first * summed, by_first]
        by_dense += [outer(first, by_sum_again), by_sum_again, by_second * summed_again, by_second]
        return by_row, [*by_dense, slopes * second, slopes]

    def _layers(self, dimension: int) -> Shapes:
        wide, narrow = 4 * dimension, 2 * dimension
        return {
            "first": (self._features + 2, dimension, wide),
            "first_bias": (wide,),
            "first_scale": (wide,),  # minus one, so that a penalty pulls towards "unchanged"
            "first_shift": (wide,),
            "second": (wide, narrow),
            "second_bias": (narrow,),
            "second_scale": (narrow,),
            "second_shift": (narrow,),
            "output": (narrow,),
            "output_bias": (1,),
        }


def _activate(hidden: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return torch.relu(hidden * (1 + scale) + shift)
