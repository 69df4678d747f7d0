"""A task and its successors on one pair of servers, as devices see them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
from tests.simulation.pair import SUCCEEDED, Pair, a_pair

from secemb_server0.conductor import Decision, Succeeded
from secemb_shared.catalogue import FILE, Catalogue, digest_of
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.succession import CONTINUED, Link
from secemb_shared.row_map import SEEDED


class TaskChain(Pair):
    """The pair of the first task; requests go to the task that they name, steps to the newest one."""

    pairs: list[Pair]

    @property
    def newest(self) -> Pair:
        return self.pairs[-1]

    async def send(self, role: int, request: httpx.Request) -> httpx.Response | None:
        """Carry a device's request to its task; one that names a round, to the task of the round."""
        for pair in self.pairs:
            if f"/tasks/{pair.task.task_id.hex()}" in request.url.path:
                return await Pair.send(pair, role, request)
        for pair in self.pairs[:-1]:
            answer = await Pair.send(pair, role, request)
            if answer is not None and b"round-unknown" not in answer.content:
                return answer
        return await Pair.send(self.newest, role, request)

    async def step(self) -> Decision | None:
        """Let the newest task's leader do one thing."""
        return await Pair.step(self.newest)

    async def switch(
        self, *, catalogue: Catalogue | None = None, start: str = SEEDED, budget: str = CONTINUED, **changes: Any
    ) -> Link:
        """Let both operators agree to a successor, and switch."""
        old = self.newest
        file = catalogue.encode() if catalogue is not None else None
        if catalogue is not None and file is not None:
            changes |= {"items": len(catalogue), "catalogue": digest_of(file)}
        task = replace(old.task, predecessor=old.task.task_id.hex(), **changes)
        for role in (0, 1):
            await old.parties[role].successions.agree(task.encode(), file, start=start, budget=budget)
        for _ in range(60):
            await Pair.exchange(old)
            if isinstance(await Pair.step(old), Succeeded):
                break
        link = old.parties[0].successions.link
        assert link is not None
        assert link == old.parties[1].successions.link
        path = self.folder / f"{len(self.pairs)}-{FILE}"
        if file is not None:
            path.write_bytes(file)
        after = Pair(self.folder, task, clock=self.clock, catalogue=path if file is not None else None)
        self.pairs.append(await after.start())
        return link


@asynccontextmanager
async def a_chain(*, catalogue: Catalogue | None = None, **task: Any) -> AsyncIterator[TaskChain]:
    """Run a task that can have successors."""
    file = catalogue.encode() if catalogue is not None else None
    async with a_pair(catalogue=file, **SUCCEEDED | task) as pair:
        chain = TaskChain(**{name: getattr(pair, name) for name in Pair.__dataclass_fields__})
        chain.pairs = [pair]
        try:
            yield chain
        finally:
            for later in chain.pairs[1:]:
                await later.stop()


def first_task(chain: TaskChain) -> TaskSpec:
    """Return the task that devices have pinned."""
    return chain.pairs[0].task
