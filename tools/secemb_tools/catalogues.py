"""The paper's catalogues, by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from secemb_shared.layout import Geometry
from secemb_shared.messages import RoundSpec
from secemb_tools.errors import OperationError
from secemb_tools.specification import build_task

WIDTH = 65  # row width: 64 and a bias


@dataclass(frozen=True, slots=True)
class PaperCatalogue:
    """One column of the paper's tables."""

    name: str
    items: int
    capacity: int

    def round(
        self, geometry: Geometry, *, row_width: int = WIDTH, dense_size: int = 0, norm_bound: int | None = None
    ) -> RoundSpec:
        """Return a round of a task with this catalogue; without a norm bound it has the default one."""
        task = build_task(
            name=self.name,
            items=self.items,
            row_width=row_width,
            dense_size=dense_size,
            capacity=self.capacity,
            geometry=geometry,
            fraction_bits=16,
            bound=2**20,
            cohort=1000,
            norm_bound=norm_bound,
        )
        return RoundSpec(task=task, number=1, model_version=1, model_digest=bytes(32))


CATALOGUES = (
    PaperCatalogue("ML100K", 1_682, 200),
    PaperCatalogue("ML1M", 3_883, 300),
    PaperCatalogue("ML10M", 10_681, 300),
    PaperCatalogue("ML25M", 62_423, 500),
    PaperCatalogue("Yelp", 93_386, 500),
)
# The paper gives no m' for its sequences: 100 are the 50 items of SASRec's window and a negative for each.
AMAZON = PaperCatalogue("Amazon", 9_267_503, 100)


def choose(names: Sequence[str]) -> list[PaperCatalogue]:
    """Return the catalogues with these names, or all that one machine can measure."""
    known = {one.name: one for one in (*CATALOGUES, AMAZON)}
    if unknown := set(names) - known.keys():
        raise OperationError(f"unknown catalogue {', '.join(sorted(unknown))}; choose one of {', '.join(known)}")
    return [known[name] for name in names] or list(CATALOGUES)
