"""Devices without a disk: the SDK's own code around ratings and a private part that are handed to it."""

from collections.abc import Mapping

from secemb_sdk.context import Context
from secemb_sdk.home.vault import Vault
from secemb_sdk.models import PrivateState, Ratings
from secemb_sdk.round.selection import Selection, select, to_fit
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import SQUARED, TRAIN
from secemb_shared.randomness import RandomBytes
from secemb_tools.simulation.world import World


class Memory(Vault):
    """What a device keeps, for the length of a run: its ratings, its private part and the key of its hold-out."""

    def __init__(self, world: World, person: int) -> None:
        self._own, self._key = world.ratings_of(person), world.hold_out_key_of(person)
        self._private: PrivateState | None = None

    @property
    def hold_out_key(self) -> bytes:
        """Return the key that decides which ratings are held out."""
        return self._key

    def ratings(self) -> Mapping[int, float]:
        """Return the person's ratings."""
        return self._own

    def private(self) -> PrivateState | None:
        """Return the private part, if this device has trained before."""
        return self._private

    def keep_private(self, private: PrivateState | None) -> None:
        """Let this be the private part from now on."""
        self._private = private


class SimulatedDevice:
    """One person's device: the context that the SDK's steps work on."""

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
        """Return what the device brings to a round; ratings to train on never change in a run, and are found once."""
        if round_.kind != TRAIN or round_.task.loss != SQUARED:
            return select(round_, self.memory.ratings(), self.context.held_out(), random_bytes)
        if self._to_train is None:
            self._to_train = select(round_, self.memory.ratings(), self.context.held_out(), random_bytes)
        return self._to_train

    def ratings_to_fit(self) -> Ratings:
        """Return everything that the private part can be solved from: for rankings with strangers beside."""
        held, known = self.context.held_out(), self.memory.ratings()
        mine = {item: value for item, value in known.items() if item not in held}
        return to_fit(self._world.task, mine, known, self._world.random_bytes("fit", self.person))


class Devices:
    """The devices of a world; each is made when it first takes part."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._made: dict[int, SimulatedDevice] = {}

    def __getitem__(self, person: int) -> SimulatedDevice:
        found = self._made.get(person)
        if found is None:
            found = self._made[person] = SimulatedDevice(self.world, person)
        return found
