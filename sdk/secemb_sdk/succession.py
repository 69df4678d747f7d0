"""Following a task to its successor: link by link from the pinned task, each signed by both servers of the last one."""

import hashlib
from collections.abc import Callable

from secemb_sdk.context import Context, Successor
from secemb_sdk.errors import DeclinedError, SucceededError, SuccessorError, UnavailableError
from secemb_sdk.exchange import Exchange, json_object
from secemb_sdk.home.catalogue_file import CatalogueFile
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.receipts import date_of, make_receipt
from secemb_sdk.home.records import Keyed, Written
from secemb_sdk.home.switches import SwitchReceipt
from secemb_sdk.steps import Answer, Request, Result, Steps, work
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.succession import Link
from secemb_shared.row_map import RowMap

_MOST_LINKS = 1000  # that one call follows
_MOST_BYTES = 1 << 16  # of a link
_RUN_BYTES, _MOST_ROW_BYTES = 9, 1 << 28
_SECONDS = 300.0
_FORGED = "the task's successor is not signed by both servers, so this device stays with its task; tell both operators"
_FORKED = "the servers present different successors of the task, so this device follows neither; tell both operators"
_ROWS = "server 0 sent other rows of the task's successor than the servers have signed; tell its operator"


def following(context: Context, begin: Callable[[], Steps[Result]]) -> Steps[Result]:
    """Run the steps; if the task has a successor, follow it and begin again."""
    for _ in range(_MOST_LINKS):
        try:
            return (yield from begin())
        except SucceededError:
            exchange = Exchange(context)
            yield from exchange.noting(follow(exchange))
    raise UnavailableError("the task has too many successors to follow in one call")


def follow(exchange: Exchange) -> Steps[SwitchReceipt]:
    """Move this device to the successor of its task; nothing changes unless everything about it is right."""
    context = exchange.context
    path = f"/v1/tasks/{context.current_task.hex()}/successor"
    asked = (Request(server=server, method="GET", path=path, most=_MOST_BYTES) for server in (0, 1))
    answers = yield from exchange.ask(*asked)
    predecessor, link = _agreed(context, answers)
    rows = yield from _read_rows(exchange, path, predecessor, link)
    found = Successor(
        task_id=link.succession.successor,
        name=link.task.name,
        items=link.task.items,
        kept=rows.kept.size,
        budget=link.succession.budget,
    )
    if not (yield from work(lambda: context.policy.follow(found))):
        raise DeclinedError("the task has a successor, and the app's policy does not follow it")
    return (yield from work(lambda: _move(context, predecessor, link, rows)))


def _agreed(context: Context, answers: list[Answer]) -> tuple[TaskSpec, Link]:
    """Return this device's task and the link from it, if both servers present the same."""
    (predecessor, link), (_, other) = (_read(context, answer) for answer in answers)
    if link.succession != other.succession:
        raise SuccessorError(_FORKED, noticed=Misconduct.FORK)
    return predecessor, link


def _read(context: Context, answer: Answer) -> tuple[TaskSpec, Link]:
    """Return this device's task and a server's link from it."""
    found = json_object(answer.body)
    try:
        predecessor, link = TaskSpec.decode(str(found.get("predecessor")).encode()), Link.from_json(found)
        link.check(predecessor)
        if predecessor.task_id == context.current_task:
            return predecessor, link
    except (SecEmbError, UnicodeEncodeError):
        pass
    raise SuccessorError(_FORGED, noticed=Misconduct.SUCCESSOR)


def _read_rows(exchange: Exchange, path: str, predecessor: TaskSpec, link: Link) -> Steps[RowMap]:
    """Return the row map; both servers have signed its digest, so one of them is enough."""
    most = min(_RUN_BYTES * (link.task.items + 1), _MOST_ROW_BYTES)
    (answer,) = yield from exchange.ask(
        Request(server=0, method="GET", path=f"{path}/rows", most=most, seconds=_SECONDS)
    )
    if hashlib.sha256(answer.body).hexdigest() != link.succession.rows:
        raise SuccessorError(_ROWS, noticed=Misconduct.SUCCESSOR)
    try:
        return RowMap.decode(answer.body, before=predecessor.items, rows=link.task.items)
    except SecEmbError as error:
        raise SuccessorError(_ROWS) from error


def _move(context: Context, predecessor: TaskSpec, link: Link, rows: RowMap) -> SwitchReceipt:
    """End the session of the old task and move the home."""
    vault, now = context.vault, context.wall_clock()
    stage = vault.session()
    if isinstance(stage, Keyed | Written):
        receipt = make_receipt(
            RoundSpec.decode(stage.ticket.round, predecessor),
            stage.ticket.traffic,
            truncated=stage.ticket.truncated,
            complete=False,
            wall_time=now,
            transport=stage.ticket.transport,
        )
        vault.end_session(receipt, receipts=stage.ticket.receipts, forgotten=vault.forgotten)
    found = vault.follow(link, rows, date_of(now))
    CatalogueFile(vault.public_folder, link.task).drop_part()
    return found
