"""The registry of models by name. To add one, write its class in a file and register it at the end of this one.

An app can register its own model, which can then be used wherever a model's name is accepted. A class that can be
imported needs no registration: `package.module:Class` is its name.
"""

from dataclasses import dataclass, field
from inspect import signature
from pkgutil import resolve_name

import numpy as np

from secemb_sdk.errors import ModelError, UnknownModelError
from secemb_sdk.models.interface import FeatureLookup, Features, Model, follows, reads_texts
from secemb_shared.randomness import Indices


@dataclass(frozen=True, slots=True, eq=False)
class KnownFeatures:
    """Known features of one person and of every item, in addition to the ratings: ones and zeros."""

    person: Features = field(repr=False)  # (features of a person,)
    items: FeatureLookup = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model: of a row, of its dense part and of its private part."""

    row_width: int
    dense_size: int
    private_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKind:
    """A named model. Its class is imported when the first model is created, because torch is slow to import."""

    name: str  # as users type it
    title: str  # as tables and charts show it
    factory: str  # "module:class"
    needs_torch: bool = True
    needs_features: bool = False  # the class takes `user_features` and `item_features`
    has_dense: bool = True  # the class takes `dense_penalty`
    has_events: bool = False  # it learns from events in time order: the loss of its tasks is `next`
    has_texts: bool = False  # its events are words
    instance: Model | None = field(default=None, repr=False, compare=False)  # the model itself, if already created

    def make(
        self,
        *,
        dense_penalty: float | None = None,
        features: KnownFeatures | None = None,
        **settings: object,  # dimension, loss, penalty, person_penalty, bias_penalty, scale
    ) -> Model:
        """Return the model; a setting that is None, or unknown to the class, is left to the class."""
        if self.instance is not None:
            return self.instance
        if self.has_dense:
            settings["dense_penalty"] = dense_penalty
        if self.needs_features:
            if features is None:
                raise ModelError(f"the model {self.name!r} needs features of users and items; pass `features`")
            settings |= {"user_features": features.person, "item_features": features.items}
        factory = resolve_name(self.factory)
        known = signature(factory).parameters
        model: Model = factory(**{name: one for name, one in settings.items() if one is not None and name in known})
        return model

    def shape(self, *, dimension: int | None = None, user_features: int = 0, item_features: int = 0) -> Shape:
        """Return the sizes of the model for these feature counts."""

        def no_features(items: Indices) -> Features:
            return np.zeros((items.size, item_features), dtype=np.uint8)

        features = KnownFeatures(np.zeros(user_features, dtype=np.uint8), no_features)
        model = self.make(dimension=dimension, features=features)
        return Shape(row_width=model.row_width, dense_size=model.dense_size, private_size=model.private_size)


_TORCH = "secemb_sdk.models.torch"
_KINDS: dict[str, ModelKind] = {}
_OWN: dict[str, ModelKind] = {}  # by the names of their classes


def register(kind: ModelKind) -> None:
    """Register a model under its name, or raise `ModelError` if the name is taken."""
    if _KINDS.setdefault(kind.name, kind) != kind:
        raise ModelError(f"a model named {kind.name!r} already exists; choose a different name")


def names() -> tuple[str, ...]:
    """Return all names, in the order of registration."""
    return tuple(_KINDS)


def find(name: str) -> ModelKind:
    """Return the model with this name, registered or `package.module:Class`, or raise `UnknownModelError`."""
    if name not in _KINDS and name not in _OWN and ":" in name:
        _OWN[name] = _imported(name)
    try:
        return _KINDS.get(name) or _OWN[name]
    except KeyError:
        raise UnknownModelError(
            f"unknown model {name!r}; choose one of {', '.join(names())}, or give a class as package.module:Class"
        ) from None


def name_of(model: str | Model) -> str:
    """Return the name of a model. A model object has the name of its class, until another is registered."""
    if isinstance(model, str):
        _OWN.pop(model, None)
        return model
    kind = type(model)
    name = f"{kind.__module__}:{kind.__qualname__}"
    _OWN[name] = ModelKind(
        name=name,
        title=kind.__name__,
        factory=name,
        needs_torch=_uses_torch(kind),
        has_dense=False,
        has_events=follows(model),
        has_texts=reads_texts(model),
        instance=model,
    )
    return name


def _imported(name: str) -> ModelKind:
    try:
        kind = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownModelError(
            f"{name!r} cannot be imported ({error}); give package.module:Class, with its directory on PYTHONPATH"
        ) from None
    if not isinstance(kind, type) or not all(hasattr(kind, part) for part in ("gradients", "scores", "first_private")):
        raise UnknownModelError(f"{name!r} is not a model; see Models in docs/sdk.md for what its class needs")
    takes = signature(kind).parameters
    return ModelKind(
        name=name,
        title=kind.__name__,
        factory=name,
        needs_torch=_uses_torch(kind),
        needs_features={"user_features", "item_features"} <= takes.keys(),
        has_dense="dense_penalty" in takes,
        has_events=hasattr(kind, "follow"),
        has_texts=hasattr(kind, "split"),
    )


def _uses_torch(kind: type) -> bool:
    """Tell whether a class computes with torch, in which case it has imported it."""
    return any(base.__module__.startswith(_TORCH) for base in kind.__mro__)


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
register(ModelKind(name="sasrec", title="SASRec", factory=f"{_TORCH}:SelfAttention", has_events=True))
register(ModelKind(name="caser", title="Caser", factory=f"{_TORCH}:Convolution", has_events=True))
register(ModelKind(name="lm", title="Word LM", factory=f"{_TORCH}:LanguageModel", has_events=True, has_texts=True))
