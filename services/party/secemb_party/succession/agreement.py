"""What the operator of a server has agreed to: the successor of a task, and what it begins with."""

from dataclasses import dataclass

from secemb_party.storage import Model
from secemb_party.succession.errors import SuccessionRefusedError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.succession import FRESH, Succession
from secemb_shared.row_map import RowMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The successor that the operator of a server has agreed to."""

    task: TaskSpec
    rows: RowMap
    start: str  # of new rows
    budget: str

    @property
    def digest(self) -> str:
        """Return what both servers' agreements must have in common."""
        return digest(f"{self.task.task_id.hex()} {self.rows.digest.hex()} {self.budget}".encode()).hex()

    def name(self, last: Model, first: Model) -> Succession:
        """Return the document with which these models are the last one and the first one."""
        return Succession(
            predecessor=last.task_id.hex(),
            successor=self.task.task_id.hex(),
            last_version=last.version,
            last_digest=last.digest.hex(),
            first_digest=first.digest.hex(),
            rows=self.rows.digest.hex(),
            budget=self.budget,
        )


def check_budget(predecessor: TaskSpec, successor: TaskSpec, budget: str) -> None:
    """Refuse to continue a privacy budget where the guarantees cannot be added up."""
    if budget == FRESH:
        return
    before, after = predecessor.privacy, successor.privacy
    if (before is None) != (after is None):
        raise SuccessionRefusedError(
            "the privacy budget cannot continue between a task with noise and one without; agree to a fresh budget"
        )
    if before is not None and after is not None and before.unit != after.unit:
        raise SuccessionRefusedError(
            "the privacy budget cannot continue, because the unit of privacy changes; agree to a fresh budget"
        )
