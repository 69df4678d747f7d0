"""Devices without a disk: the SDK's own code with ratings and a private part in memory."""

from collections.abc import Mapping

from secemb_sdk.context import Context
from secemb_sdk.home.records import Events
from secemb_sdk.home.vault import Encode, Vault
from secemb_sdk.models import PrivateState, Ratings
from secemb_sdk.round.selection import Selection
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import NEXT, SQUARED, TRAIN
from secemb_shared.randomness import Indices, RandomBytes
from secemb_tools.simulation.world import World


class Memory(Vault):
    """A device's data during a run: ratings or events, a private part and the hold-out key."""

    def __init__(self, world: World, person: int) -> None:
        events = world.task.loss == NEXT
        self._own = {} if events else world.ratings_of(person)
        self._events = world.events_of(person) if events else Events.none()
        self._key = world.hold_out_key_of(person)
        self._private: PrivateState | None = None

    @property
    def hold_out_key(self) -> bytes:
        """Return the key that decides which ratings are held out."""
        return self._key

    def names(self) -> Mapping[int, int]:
        """Return that no item has another row: a run has one task."""
        return {}

    def ratings(self) -> Mapping[int, float]:
        """Return the person's ratings."""
        return self._own

    def events(self) -> Events:
        """Return the person's events."""
        return self._events

    def words(self, encode: Encode) -> Indices:
        """Return the words of the person's texts: in a set they are already rows."""
        return self._events.items

    def private(self) -> PrivateState | None:
        """Return the private part, if this device has trained before."""
        return self._private

    def keep_private(self, private: PrivateState | None) -> None:
        """Store the private part."""
        self._private = private


class SimulatedDevice:
    """One person's device: the context for the SDK's steps."""

    def __init__(self, world: World, person: int) -> None:
        self.person, self.memory, self._world = person, Memory(world, person), world
        self._model = world.model_of(person)
        self.context = Context(
            vault=self.memory,
            task_id=world.task.task_id,
            model=self._model,
            epochs=world.epochs,
            hold_out=world.hold_out,
        )
        self._to_train: Selection | None = None

    def select(self, round_: RoundSpec, random_bytes: RandomBytes) -> Selection:
        """Return the device's selection for a round; training ratings never change in a run, and are selected once."""
        if round_.kind != TRAIN or round_.task.loss != SQUARED:
            return self.context.select(round_, random_bytes)
        if self._to_train is None:
            self._to_train = self.context.select(round_, random_bytes)
        return self._to_train

    def ratings_to_fit(self) -> Ratings:
        """Return all data for solving for the private part; for rankings, with strangers."""
        random_bytes = self._world.random_bytes("fit", self.person)
        return self.context.own_data(self._world.task, random_bytes, held_out=False)


class Devices:
    """The devices of a world; each is created when it first takes part."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._made: dict[int, SimulatedDevice] = {}

    def __getitem__(self, person: int) -> SimulatedDevice:
        found = self._made.get(person)
        if found is None:
            found = self._made[person] = SimulatedDevice(self.world, person)
        return found
