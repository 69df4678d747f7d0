"""The models that have a name. To add one, write its class in a file and register it at the end of this one.

An app can register its own model: everything that takes a model's name then knows it.
"""

from dataclasses import dataclass, field
from inspect import signature
from pkgutil import resolve_name

import numpy as np

from secemb_sdk.errors import ModelError, UnknownModelError
from secemb_sdk.models.interface import FeatureLookup, Features, Model
from secemb_shared.randomness import Indices


@dataclass(frozen=True, slots=True, eq=False)
class KnownFeatures:
    """What is known about one person and about every item, beside the ratings: ones and zeros."""

    person: Features = field(repr=False)  # (features of a person,)
    items: FeatureLookup = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many numbers a model has: in a row, in its dense part and in its private part."""

    row_width: int
    dense_size: int
    private_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKind:
    """A model by name. Its class is imported when the first model is made, because torch takes long to import."""

    name: str  # as users type it
    title: str  # as tables and charts show it
    factory: str  # "module:class"
    needs_torch: bool = True
    needs_features: bool = False  # the class takes `user_features` and `item_features`
    has_dense: bool = True  # the class takes `dense_penalty`

    def make(
        self,
        *,
        dense_penalty: float | None = None,
        features: KnownFeatures | None = None,
        **settings: object,  # dimension, loss, penalty, person_penalty, bias_penalty, scale
    ) -> Model:
        """Return the model; a setting that is None, or that the class does not know, is left to the class."""
        if self.has_dense:
            settings["dense_penalty"] = dense_penalty
        if self.needs_features:
            if features is None:
                raise ModelError(f"the model {self.name!r} needs features of people and items; pass `features`")
            settings |= {"user_features": features.person, "item_features": features.items}
        factory = resolve_name(self.factory)
        known = signature(factory).parameters
        model: Model = factory(**{name: one for name, one in settings.items() if one is not None and name in known})
        return model

    def shape(self, *, dimension: int | None = None, user_features: int = 0, item_features: int = 0) -> Shape:
        """Return the sizes of the model for these numbers of features."""

        def no_features(items: Indices) -> Features:
            return np.zeros((items.size, item_features), dtype=np.uint8)

        features = KnownFeatures(np.zeros(user_features, dtype=np.uint8), no_features)
        model = self.make(dimension=dimension, features=features)
        return Shape(row_width=model.row_width, dense_size=model.dense_size, private_size=model.private_size)


_KINDS: dict[str, ModelKind] = {}


def register(kind: ModelKind) -> None:
    """Give a model its name, or raise `ModelError` if another model has it."""
    if _KINDS.setdefault(kind.name, kind) != kind:
        raise ModelError(f"there is another model with the name {kind.name!r}; choose a different name")


def names() -> tuple[str, ...]:
    """Return all names, in the order of registration."""
    return tuple(_KINDS)


def find(name: str) -> ModelKind:
    """Return the model with this name, or raise `UnknownModelError`."""
    try:
        return _KINDS[name]
    except KeyError:
        raise UnknownModelError(f"unknown model {name!r}; choose one of {', '.join(names())}") from None


_TORCH = "secemb_sdk.models.torch"

register(
    ModelKind(
        name="mf",
        title="MF",
        factory="secemb_sdk.models.factorisation:MatrixFactorisation",
        needs_torch=False,
        has_dense=False,
    )
)
register(ModelKind(name="ncf", title="NCF", factory=f"{_TORCH}:NeuralCollaborativeFiltering"))
register(ModelKind(name="fm", title="FM", factory=f"{_TORCH}:FactorisationMachine", needs_features=True))
register(ModelKind(name="deepfm", title="DeepFM", factory=f"{_TORCH}:DeepFactorisationMachine", needs_features=True))
