"""What an operator may ask server 0 alone: to go back to an older version of the model."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from secemb_party.errors import RollbackRefusedError
from secemb_party.http.operator_routes import operator_router
from secemb_party.http.problems import problem_responses
from secemb_party.http.requests import Number
from secemb_party.ledger import Rollback
from secemb_party.service import Party
from secemb_server0.leader import Leader

Version = Annotated[Number, Path()]
Seen = Annotated[Number, Query(description="the version that is published now")]


class RollbackView(BaseModel):
    """A wish to go back, and what became of it."""

    source: int
    seen: int
    wished_at: float
    ended_at: float | None  # None: it waits for the end of the round, or for server 1
    made: int | None  # the version that has the numbers of `source` now
    reason: str | None  # why there is none


def rollback_routes(party: Party, leader: Leader, token_hash: bytes) -> APIRouter:
    """Return the routes around rollbacks; every one needs the operator's token."""
    router = operator_router(token_hash)

    @router.post("/models/{version}/rollback", status_code=202, responses=problem_responses(RollbackRefusedError))
    async def roll_back(version: Version, seen: Seen) -> RollbackView:
        """Publish the numbers of an older version anew, before the next round; the same again changes nothing."""
        return _view(await leader.roll_back(version, seen))

    @router.get("/rollbacks")
    async def rollbacks() -> list[RollbackView]:
        """Return the last rollbacks, the newest first."""
        return [_view(one) for one in await party.ledger.rollbacks(party.task.task_id)]

    return router


def _view(one: Rollback) -> RollbackView:
    return RollbackView(
        source=one.source,
        seen=one.seen,
        wished_at=one.wished_at,
        ended_at=one.ended_at,
        made=one.made,
        reason=one.reason,
    )
