"""Every setting of a server, its value, and where that comes from."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from secemb_party.secret_file import SecretFile
from secemb_party.settings import DELIMITER, PREFIX, Settings
from secemb_tools.operate.running import settings_at


def settings_with_origins(config: Path) -> list[dict[str, object]]:
    """Return a row for each setting: from a variable, from the file, or as it is by default."""
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


def _shown(value: object) -> object:
    """Return a value that may be seen: of a secret the file that holds it."""
    if isinstance(value, SecretFile):
        return f"{value.path} (secret, not shown)"
    return value if isinstance(value, bool | int | float | str | None) else str(value)
