"""A plain run and, for some of its rounds, the private run of the same world: equal after each round, or not."""

from time import process_time

from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.world import World


class Comparison:
    """Two runs of one world, round by round. CPU times are of this process, and measurements are not in them."""

    def __init__(self, world: World, *, rounds: int, private_rounds: int | None) -> None:
        """Compare the first `private_rounds`, or all of them if that is None."""
        self.plain, self.private = (Engine(world, way=way) for way in (PLAIN, PRIVATE))
        self.rounds = rounds
        self.private_rounds = rounds if private_rounds is None else min(private_rounds, rounds)
        self.same_bits = True  # after every round so far that both have run
        self.plain_seconds = self.private_seconds = 0.0

    @property
    def whole(self) -> bool:
        """Tell whether the private run goes to the end."""
        return self.private_rounds == self.rounds

    def step(self) -> int:
        """Run the next round; return how many have been run."""
        begin = process_time()
        self.plain.step()
        middle = process_time()
        self.plain_seconds += middle - begin
        if self.plain.rounds <= self.private_rounds:
            self.private.step()
            self.private_seconds += process_time() - middle
            self.same_bits = self.same_bits and self.plain.model.digest == self.private.model.digest
        return self.plain.rounds


def measured_after(done: int, rounds: int) -> bool:
    """Tell whether a curve has a point after this many rounds: often at first, where it falls, and at the end."""
    step = 5 if done <= 50 else 25 if done <= 100 else 50
    return done % step == 0 or done == rounds
