"""The settings of a server: the origin of each value, and the server that runs with them."""

import asyncio
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypedDict

from secemb_party.assembly import task_places
from secemb_party.logs import configure_logs, get_logger
from secemb_party.metric_labels import short_id
from secemb_party.setting_types import SecretFile
from secemb_party.settings import DELIMITER, PREFIX, Settings, load_settings
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError
from secemb_tools.operate.supervisor import as_replica

Shown = str | float | bool | None


class SettingRow(TypedDict):
    """One setting; for a secret, the file that contains it."""

    setting: str
    value: Shown
    origin: str


def settings_with_origins(config: Path) -> list[SettingRow]:
    """Return a row for each setting: from a variable, from the file, or its default."""
    settings = settings_at(config)
    path = config / "secemb.toml" if config.is_dir() else config
    written = tomllib.loads(path.read_text())
    variables = {name.upper() for name in os.environ}
    return [
        {"setting": ".".join(names), "value": _shown(value), "origin": _origin(names, written, variables, path)}
        for names, value in _values(settings)
    ]


def _values(settings: Settings) -> Iterator[tuple[tuple[str, ...], object]]:
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from (((name, key), getattr(value, key)) for key in type(value).model_fields)
        else:
            yield (name,), value


def _origin(names: tuple[str, ...], written: dict[str, Any], variables: set[str], path: Path) -> str:
    variable = PREFIX + DELIMITER.join(names).upper()
    if variable in variables:
        return f"variable {variable}"
    table: Any = written
    for name in names:
        if not isinstance(table, dict) or name not in table:
            return "default"
        table = table[name]
    return f"file {path}"


def _shown(value: object) -> Shown:
    """Return a value that may be shown: for a secret, the file that contains it."""
    if isinstance(value, SecretFile):
        return f"{value.path} (secret, not shown)"
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def settings_at(path: Path, **variables: str) -> Settings:
    """Return the settings in a file, or in the directory that `secemb init` created, overridden by variables."""
    return load_settings(path / "secemb.toml" if path.is_dir() else path, {**os.environ, **variables})


def settings_of_task(path: Path, named: str | None) -> Settings:
    """Return the settings as if they named one task: the one of this name or id, or the only one."""
    settings = settings_at(path)
    places = list(task_places(settings).all().values())
    found = [one for one in places if named is None or named == one.task.name or _begins(one.task, named)]
    if len(found) != 1:
        listed = ", ".join(f"{short_id(one.task.task_id)} ({one.task.name})" for one in places)
        told = "several tasks have files here" if named is None else f"{len(found) or 'no'} tasks are called {named}"
        raise OperationError(f"{told}; name one of them with --task: {listed}")
    if found[0].in_settings:
        return settings
    one = {"file": found[0].file, "catalogue_file": None}
    return settings.model_copy(update={"task": settings.task.model_copy(update=one)})


def _begins(task: TaskSpec, digits: str) -> bool:
    return len(digits) > 3 and task.task_id.hex().startswith(digits)


def serve(settings: Settings, *, replica: int | None = None) -> None:
    """Run the server of the settings' role until a signal, alone or as one of several replicas on this machine."""
    configure_logs(settings.logs.level, settings.logs.format)
    if replica is not None:
        settings = as_replica(settings, replica)
    if settings.role == 0:
        from secemb_server0.app import run
    else:
        from secemb_server1.app import run
    from secemb_party.http.event_loop import EventLoop  # imported here because no other command needs it

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        try:
            runner.run(run(settings))
        except SecEmbError:
            raise  # its message is written for the operator
        except Exception as error:  # the message of any other may quote a request
            get_logger().critical("the server failed", exc_info=error)
            raise OperationError("the server failed; see the last line of its log") from None
