"""A client of a server's operator API: it needs only the address and an operator token."""

import os
import time
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from typing_extensions import TypedDict

from secemb_sdk.trust import line_problem, make_context, tls_problem
from secemb_tools.errors import OperationError, UnreachableError

VARIABLE = "OPERATOR_TOKEN"  # tokens in the order of the servers, separated by spaces
_SECONDS = 15.0


class KnownTask(TypedDict):
    """A task that a server knows."""

    task: str  # its id
    name: str
    state: str  # running, succeeded, stopped, archived, failed, new, or earlier
    in_settings: bool
    fault: str | None  # why it cannot run


@dataclass(slots=True)
class OperatorClient:
    """A connection to one server's operator API."""

    url: str
    token: str = field(repr=False)
    ca: Path | None = None  # the authorities to trust; None: the system's authorities
    task: str | None = None  # a task by its name or the first digits of its id; None: the only one
    _client: httpx.Client = field(init=False, repr=False)
    _prefix: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise OperationError(f"{self.url} is not a valid address; use http://host:port or https://host")
        headers = {"authorization": f"Bearer {self.token}"}
        verify = make_context(self.url, ca=self.ca)
        self._client = httpx.Client(
            base_url=self.url, headers=headers, timeout=_SECONDS, trust_env=False, verify=verify
        )
        self._prefix = ""
        if self.task is not None:
            self._prefix = f"/tasks/{self.find_task(self.task)['task']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """Return the answer to a GET."""
        return self._ask("GET", path)

    def post(self, path: str, **query: int | str) -> Any:
        """Return the answer to a POST."""
        return self._ask("POST", path, query)

    def send(self, path: str, body: Mapping[str, str | None], *, reason: str) -> Any:
        """Return the answer to a POST with a JSON body."""
        return self._ask("POST", path, {"reason": reason}, body)

    def delete(self, path: str, *, reason: str) -> Any:
        """Return the answer to a DELETE."""
        return self._ask("DELETE", path, {"reason": reason})

    def tasks(self) -> list[KnownTask]:
        """Return the tasks that the server knows."""
        found: list[KnownTask] = self._ask("GET", "tasks")
        return found

    def each_task(self) -> "Iterator[OperatorClient]":
        """Yield a client for each task that runs at the server; they share the connection."""
        running = [one["task"] for one in self.tasks() if one["state"] == "running"]
        if not running:
            raise OperationError(f"no task is running at {self.url}; `secemb task list` shows those that it knows")
        for task in running:
            one = copy(self)
            one._prefix = f"/tasks/{task}" if len(running) > 1 else ""
            yield one

    def find_task(self, named: str) -> KnownTask:
        """Return a task by its name or the first digits of its id."""
        known = self.tasks()
        found = [one for one in known if named == one["name"] or (len(named) > 3 and one["task"].startswith(named))]
        if len(found) > 1:  # a task and its predecessors may have the same name
            found = [one for one in found if one["state"] not in ("succeeded", "archived")] or found
        if len(found) != 1:
            listed = ", ".join(f"{one['task'][:8]} ({one['name']}, {one['state']})" for one in known) or "none"
            raise OperationError(f"{len(found) or 'no'} tasks at {self.url} are called {named}; it knows: {listed}")
        return found[0]

    def readiness(self) -> dict[str, Any]:
        """Return the server's readiness report, which requires no token."""
        try:
            found: dict[str, Any] = self._client.get("/readyz").json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._away(error) from None
        return found

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, int | str] | None = None,
        body: Mapping[str, str | None] | None = None,
    ) -> Any:
        prefix = "" if path.split("/", maxsplit=1)[0] == "tasks" else self._prefix
        try:
            answer = self._client.request(method, f"{prefix}/v1/operator/{path}", params=query, json=body)
        except httpx.HTTPError as error:
            raise self._away(error) from None
        if answer.status_code == 401:
            raise OperationError(
                f"{self.url} rejected this token; put an active token of that server in --token-file or "
                f"{VARIABLE} (`secemb operator list` lists them, `secemb operator add` creates one)"
            )
        if answer.status_code == 503 and not _is_stopped(answer):
            raise UnreachableError(f"{self.url} is not available now: {self._hindrance()}")
        if answer.is_error:
            raise OperationError(f"{self.url} refuses: {_detail(answer)}")
        return answer.json()

    def _hindrance(self) -> str:
        """Return the server's reason for a failure."""
        hints = [one.get("hint") for one in self.readiness().get("checks", []) if not one.get("ok")]
        return "; ".join(filter(None, hints)) or "see its log"

    def _away(self, error: Exception) -> OperationError:
        if (problem := tls_problem(error, self.url)) is not None:
            return OperationError(f"{self.url} {problem}")  # retrying would not help
        return UnreachableError(
            f"{self.url} did not respond: {line_problem(error)}; check that the server is running and that "
            "--server is right"
        )


def tokens_for(count: int, files: list[Path]) -> list[str]:
    """Return a token for each server, from files or from the variable: command lines are visible to other users."""
    found = [path.read_text(encoding="utf-8", errors="replace").strip() for path in files] or os.environ.get(
        VARIABLE, ""
    ).split()
    if len(found) != count:
        raise OperationError(
            f"{count} tokens are needed and {len(found)} were given; give one --token-file for each --server, or put "
            f"the tokens in {VARIABLE}, separated by spaces"
        )
    if not all(token.isascii() and token.isprintable() for token in found):
        raise OperationError(
            f"the token contains invalid characters; copy it again, exactly as printed, to --token-file or {VARIABLE}"
        )
    return found


def _is_stopped(answer: httpx.Response) -> bool:
    return "task-stopped" in answer.text


def _detail(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        return str(problem.get("detail") or problem.get("title") or answer.status_code)
    except (ValueError, AttributeError):
        return str(answer.status_code)


_PAUSE = 0.2


class Rollback(TypedDict):
    """The outcome of a rollback."""

    source: int  # the version whose weights are published again
    seen: int  # the version that was published before
    made: int | None  # the new version, once there is one
    state: str


def published_version(client: OperatorClient) -> int:
    """Return the version that devices read now."""
    overview = client.get("overview")
    if overview["role"] != 0:
        raise OperationError("server 0 controls the model; give its address and its operator token")
    if overview["model_version"] is None:
        raise OperationError("no version is published yet; start both servers first")
    return int(overview["model_version"])


def roll_back(client: OperatorClient, version: int, *, seen: int, reason: str | None, wait: float) -> Rollback:
    """Request an older version, wait until it is published, and return the outcome."""
    rollback = client.post(f"models/{version}/rollback", seen=seen, **({"reason": reason} if reason else {}))
    end = time.monotonic() + wait
    while rollback["ended_at"] is None and time.monotonic() < end:
        time.sleep(_PAUSE)
        rollback = next(one for one in client.get("rollbacks") if (one["source"], one["seen"]) == (version, seen))
    if rollback["reason"] is not None:
        raise OperationError(f"version {version} cannot be restored: {rollback['reason']}")
    return {
        "source": version,
        "seen": seen,
        "made": rollback["made"],
        "state": "done" if rollback["ended_at"] is not None else "waiting for the open round to end",
    }
