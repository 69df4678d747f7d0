"""Tasks that a running server starts beside its others, through its operator API."""

from pathlib import Path

from secemb_shared.catalogue import FILE
from secemb_tools.errors import OperationError
from secemb_tools.operate.operator_api import KnownTask, OperatorClient


def start(client: OperatorClient, which: str, reason: str) -> KnownTask:
    """Start a task, from its file or by the name or id of one that the server knows; return its state."""
    path = Path(which)
    if path.is_file():
        body = {"task": path.read_text("utf-8"), "catalogue": _catalogue_beside(path)}
        found: KnownTask = client.send("tasks/start", body, reason=reason)
        return found
    if path.suffix or "/" in which:
        raise OperationError(f"{which} does not exist; give the task.json that `secemb task create` wrote")
    known: KnownTask = client.post(f"tasks/{client.find_task(which)['task']}/start", reason=reason)
    return known


def _catalogue_beside(path: Path) -> str | None:
    catalogue = path.with_name(FILE)
    return catalogue.read_bytes().decode("utf-8") if catalogue.is_file() else None
