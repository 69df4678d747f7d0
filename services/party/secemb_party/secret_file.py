"""A secret that lives in a file: named in the settings, read once at start, never shown."""

import os
import stat
from pathlib import Path
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_LARGEST = 1 << 16
_OTHERS = stat.S_IRWXO | stat.S_IWGRP  # the group may read: so a service can use a file that root owns


class SecretFile:
    """The content of a file that only its owner, and perhaps the service's group, may read."""

    __slots__ = ("_content", "path")

    def __init__(self, path: Path) -> None:
        self.path = path  # for libraries that read the file themselves, as ssl does
        self._content = _read(path)

    @property
    def content(self) -> bytes:
        """Return what was in the file when the server started."""
        return self._content

    def text(self) -> str:
        """Return the content as one line of text, without white space around it."""
        try:
            return self._content.decode("ascii").strip()
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is not plain text") from None

    def __repr__(self) -> str:
        """Show where the secret is, not what it is."""
        return f"SecretFile({str(self.path)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let pydantic make one from a path."""
        show = core_schema.plain_serializer_function_ser_schema(lambda secret: str(secret.path))
        return core_schema.no_info_plain_validator_function(cls._from_settings, serialization=show)

    @classmethod
    def _from_settings(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        if isinstance(value, str | Path):
            return cls(Path(value))
        raise ValueError("give the path of a file")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # Of the open file: another cannot take its place in between.
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_LARGEST + 1)
    except PermissionError:
        raise ValueError(f"{path} cannot be read; make it readable for the user of the service") from None
    except (OSError, ValueError):  # the path is not repeated: it may be the secret itself, in the wrong place
        raise ValueError("there is no such file; name one that holds the secret") from None
    if mode & _OTHERS:
        raise ValueError(f"{path} can be read or written by other users; run: chmod 600 {path}")
    if not content.strip() or len(content) > _LARGEST:
        raise ValueError(f"{path} is empty, or too long for a secret")
    return content
