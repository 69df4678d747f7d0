"""The paper's twenty cases, four models on five catalogues, and the common parts of all tables about them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from time import process_time

import numpy as np

from secemb_lab.bench import device_models
from secemb_lab.constructions import Construction, Messages, Received
from secemb_lab.paper.paper_table import Settings
from secemb_lab.paper.printed import printed
from secemb_sdk.models import Model, registry
from secemb_shared.dpf import RingArray, default_backend
from secemb_shared.layout import Geometry, Placement, plan
from secemb_shared.messages import RoundSpec
from secemb_tools.catalogues import CATALOGUES, PaperCatalogue
from secemb_tools.specification import direct_geometry

Work = Callable[[], object]
_TURNS = 5  # at least, of each work
NUMBER = 4  # bytes of a float32 and of a ring element
MODELS = ("mf", "ncf", "fm", "deepfm")
SETS = tuple(one.name for one in CATALOGUES)


@dataclass(frozen=True)
class Case:
    """One model on one catalogue."""

    name: str
    catalogue: PaperCatalogue

    @property
    def title(self) -> str:
        """Return the model's name in the paper."""
        return registry.find(self.name).title

    @cached_property
    def model(self) -> Model:
        """Return the model in the size it has on the catalogue."""
        return device_models.make(self.name, self.catalogue.name)

    @property
    def numbers(self) -> int:
        """Return how many numbers the whole public model has."""
        return self.catalogue.items * self.model.row_width + self.model.dense_size

    def geometry(self, *, binned: bool) -> Geometry:
        """Return the product's layout or the paper's."""
        items, capacity = self.catalogue.items, self.catalogue.capacity
        if binned:
            return plan(items=items, capacity=capacity, row_width=self.model.row_width).geometry
        return direct_geometry(items, capacity)

    def round(self, *, binned: bool, norm_bound: int | None = None) -> RoundSpec:
        """Return a round; without a norm bound its task has the default one."""
        return self.catalogue.round(
            self.geometry(binned=binned),
            row_width=self.model.row_width,
            dense_size=self.model.dense_size,
            norm_bound=norm_bound,
        )

    def device(self, kind: type[Construction], *, binned: bool = False) -> "Device":
        """Return a device in one of the paper's constructions, which do not prove the norm of an update."""
        return Device(self.round(binned=binned, norm_bound=0), kind)

    def printed(self, label: str, row: str) -> float | None:
        """Return the paper's figure for this case."""
        found = printed(label, f"{self.title} / {row}", self.catalogue.name)
        return float(found) if found is not None else None


class Device:
    """A device with the most items, in one of the paper's constructions."""

    def __init__(self, round_: RoundSpec, kind: type[Construction]) -> None:
        rng, task = np.random.default_rng(0), round_.task
        self._scheme = kind(round_, default_backend())
        items = rng.choice(task.items, task.capacity, replace=False).astype(np.int64)
        self._placement: Placement = round_.layout.place(items)
        self._payload: RingArray = rng.integers(0, 2**32, (task.geometry.slots, task.row_width), dtype=np.uint32)
        self._payload[self._placement.items < 0] = 0

    def share(self) -> int:
        """Make all messages of a round; return how many bytes they have."""
        return sum(map(len, (one for messages in self.messages() for one in messages)))

    def messages(self) -> tuple[Messages, Messages]:
        """Return the messages of the read and of the write."""
        asked = self._scheme.ask(self._placement)
        return asked.requests, self._scheme.write(asked, self._payload)

    def received(self, party: int) -> Received:
        """Return the data that one server has of a new session of this device."""
        asked = self._scheme.ask(self._placement)
        update = self._scheme.write(asked, self._payload)[party]
        return Received(asked.session_id, asked.requests[party], update)


def processor_seconds(works: Mapping[str, Work], seconds: float) -> dict[str, float]:
    """Return the minimum processor time per call of each work, over about this many seconds."""
    best = dict.fromkeys(works, float("inf"))
    end, turns = process_time() + seconds, 0
    while turns < _TURNS or process_time() < end:
        for name, work in works.items():
            begin = process_time()
            work()
            best[name] = min(best[name], process_time() - begin)
        turns += 1
    return best


def cases(settings: Settings) -> Iterator[Case]:
    """Yield the cases by model; a quick run has two models on the smallest catalogue."""
    for name in MODELS[:2] if settings.quick else MODELS:
        for catalogue in CATALOGUES[:1] if settings.quick else CATALOGUES:
            yield Case(name, catalogue)


def count(settings: Settings) -> int:
    """Return how many cases there are."""
    return 2 if settings.quick else len(MODELS) * len(CATALOGUES)
