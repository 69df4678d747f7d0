"""The versions of the model: sizes, norms and digests. A version never changes, so its norms are computed once."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from secemb_party.errors import ModelFileError
from secemb_party.ledger import ModelVersion
from secemb_party.service import Party
from secemb_party.storage import Model

SHOWN = 80  # versions; rounds have their own page
_MEASURED = 5  # of the newest: reading all that are kept takes long if the table is large


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """The norms of a version."""

    rows_mean: float  # of the Euclidean norms of the rows
    rows_largest: float
    dense: float


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """One version, with its norms if its file is kept."""

    version: ModelVersion
    kept: bool
    norms: Norms | None


class Versions:
    """The versions of one server's model."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self._norms: dict[int, Norms] = {}

    async def facts(self) -> dict[str, Any]:
        """Return the content of the page about the model."""
        party, task_id = self._party, self._party.task.task_id
        recorded = await party.ledger.versions(task_id)
        kept = party.models.versions()
        published = [one for one in recorded if one.published_at is not None]
        # A version that can be rolled back to is shown however old it is.
        shown = [one for place, one in enumerate(published) if place < _MEASURED or one.version in kept][:SHOWN]
        measured = [one for one in kept if one >= recorded[0].version - _MEASURED] if recorded else []
        numbers = party.task.items * party.task.row_width + party.task.dense_size
        return {
            "published": await party.ledger.published_version(task_id),
            "versions": [
                VersionFacts(one, one.version in kept, await self.norms(one.version, measured)) for one in shown
            ],
            "hidden": len(published) - len(shown),
            "numbers": numbers,
            "bytes": 4 * numbers,
            "rollbacks": await party.ledger.rollbacks(task_id, limit=5),
            "waiting": await party.ledger.open_rollback(task_id),
            "current": await party.ledger.current_round(task_id),
        }

    async def norms(self, version: int, kept: list[int]) -> Norms | None:
        """Return the norms of a version if its file is here and intact."""
        if version not in kept:
            return None
        if version not in self._norms:
            try:
                self._norms[version] = await self._party.workers.run(lambda: _measure(self._party.models.load(version)))
            except ModelFileError:
                return None
        return self._norms[version]


def _measure(model: Model) -> Norms:
    rows = np.sqrt(np.einsum("ij,ij->i", model.rows, model.rows, dtype=np.float64))
    return Norms(
        rows_mean=float(rows.mean()),
        rows_largest=float(rows.max()),
        dense=float(np.sqrt(np.dot(model.dense.astype(np.float64), model.dense))),
    )
