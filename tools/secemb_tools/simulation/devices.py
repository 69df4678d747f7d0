"""Devices without a disk: the SDK's own parts around a memory that is handed to them."""

from collections.abc import Mapping

from secemb_sdk.context import Context
from secemb_sdk.home.vault import Vault
from secemb_sdk.models import PrivateState
from secemb_tools.simulation.scenario import HOLD_OUT, World


class Memory(Vault):
    """What a device keeps, for the length of a run: its ratings, its private part and the key of its hold-out."""

    def __init__(self, world: World, person: int) -> None:
        self._world, self._person = world, person
        self._private: PrivateState | None = None

    @property
    def hold_out_key(self) -> bytes:
        """Return the key that decides which ratings are held out."""
        return self._world.hold_out_key_of(self._person)

    def ratings(self) -> Mapping[int, float]:
        """Return the person's ratings."""
        return self._world.ratings_of(self._person)

    def private(self) -> PrivateState | None:
        """Return the private part, if this device has trained before."""
        return self._private

    def keep_private(self, private: PrivateState | None) -> None:
        """Let this be the private part from now on."""
        self._private = private


class SimulatedDevice:
    """One person's device: the parts that the SDK's steps work on."""

    def __init__(self, world: World, person: int) -> None:
        self.memory = Memory(world, person)
        self.parts = Context(
            vault=self.memory,
            task_id=world.task.task_id,
            model=world.model_of(person),
            epochs=world.scenario.epochs,
            hold_out=HOLD_OUT,
        )
