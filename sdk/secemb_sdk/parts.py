"""What the steps of a device are made of: its memory, its wishes, its clocks and its random bytes."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from secemb_sdk.detections import Misconduct
from secemb_sdk.errors import HomeError, MisfitError, PolicyError
from secemb_sdk.models import MatrixFactorisation, Model
from secemb_sdk.policy import Policy
from secemb_sdk.receipts import date_of
from secemb_sdk.selection import HoldOut
from secemb_sdk.vault import Vault
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.privacy import RECORD
from secemb_shared.randomness import RandomBytes, secure_bytes

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One device, as its steps see it."""

    vault: Vault = field(repr=False)
    task_id: bytes
    token: str | None = field(default=None, repr=False)
    policy: Policy = field(default_factory=Policy)
    model: Model | None = None  # None: matrix factorisation of the task's width
    rate: float | None = None  # of the private part's optimiser; None: the task's rate for rows
    epochs: int = 1
    hold_out: float = 0.1  # the fraction of ratings that is for evaluation alone
    transport: str | None = None  # direct or relayed; None: relayed where the task allows it
    clock: Clock = time.monotonic  # decides
    wall_clock: Clock = time.time  # dates receipts and detections, and tells whether it is a relay key's time
    random_bytes: RandomBytes = secure_bytes

    def model_for(self, task: TaskSpec) -> Model:
        """Return the model, or raise unless it fits the task."""
        if self.epochs > 1 and task.privacy is not None and task.privacy.unit == RECORD:
            raise MisfitError("where each rating is cut apart a round is one epoch; open the device with epochs=1")
        model: Model = self.model or MatrixFactorisation(dimension=task.row_width - 1)
        if (model.row_width, model.dense_size) != (task.row_width, task.dense_size):
            raise MisfitError(
                f"the task has rows of {task.row_width} numbers and {task.dense_size} dense ones, the model "
                f"{model.row_width} and {model.dense_size}; open the device with the task's model"
            )
        return model

    def relays(self, task: TaskSpec) -> bool:
        """Return whether rounds of this task go through server 0 alone."""
        if self.transport == "relayed" and not task.relays:
            raise PolicyError("this task is not relayed; open the device with transport=None or transport='direct'")
        return task.relays and self.transport != "direct"

    def rate_for(self, task: TaskSpec) -> float:
        """Return the rate at which the private part learns."""
        return decimal(task.row_rate) if self.rate is None else self.rate

    def note(self, misconduct: Misconduct) -> None:
        """Count what a server does against the protocol. A home that cannot keep it must not change what is sent."""
        with suppress(HomeError):
            self.vault.note(misconduct, date_of(self.wall_clock()))

    def held_out(self) -> HoldOut:
        """Return which ratings are held out."""
        return HoldOut(key=self.vault.hold_out_key, fraction=self.hold_out)
