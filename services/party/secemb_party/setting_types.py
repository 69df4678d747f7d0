"""The types of a server's settings: paths, addresses, and secrets, which are read from files and never shown."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from secemb_party.ledger.database import parse
from secemb_party.storage.bucket import split_url

_LARGEST = 1 << 16
_directory: ContextVar[Path] = ContextVar("directory")  # directory of the settings file while it is being read
_OTHERS = stat.S_IRWXO | stat.S_IWGRP  # the group may read, so that a service can use a file owned by root


class SecretFile:
    """The content of a file that only its owner, and perhaps the service's group, may read. It is read once."""

    __slots__ = ("_content", "path")

    def __init__(self, path: Path) -> None:
        self.path = path  # for libraries that read the file themselves, like ssl
        self._content = _read(path)

    @property
    def content(self) -> bytes:
        """Return what was in the file when the server started."""
        return self._content

    def text(self) -> str:
        """Return the content as one line of text, without surrounding white space."""
        try:
            return self._content.decode("ascii").strip()
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is not plain text") from None

    def __repr__(self) -> str:
        """Show the path of the secret, not its content."""
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
        raise ValueError("must be the path of a file")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # Checked on the open file, so that it cannot be replaced in between.
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_LARGEST + 1)
    except PermissionError:
        raise ValueError(f"cannot read {path}; make it readable by the user that runs the service") from None
    except (OSError, ValueError):  # the path is not shown, because it may be the secret itself, entered by mistake
        raise ValueError("no such file; set this to a file that contains the secret") from None
    if mode & _OTHERS:
        raise ValueError(f"{path} is accessible to other users; run: chmod 600 {path}")
    if not content.strip() or len(content) > _LARGEST:
        raise ValueError(f"{path} is empty or too long for a secret")
    return content


@contextmanager
def relative_to(directory: Path) -> Iterator[None]:
    """Interpret paths in this block as relative to the directory of a settings file."""
    token = _directory.set(directory)
    try:
        yield
    finally:
        _directory.reset(token)


def _locate(path: Path) -> Path:
    return _directory.get(Path()) / path


def _find(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    return path


def _check_address(url: str) -> str:
    if not re.fullmatch(r"https://[^/?#@\s]+/?", url):
        raise ValueError("use https://host:port, without a path or user name")
    return url.rstrip("/")


def _check_origin(origin: str) -> str:
    if not re.fullmatch(r"https?://[^/?#@*\s]+", origin):
        raise ValueError(
            "an origin is https://host or https://host:port, without a path; each one is named, * is not taken"
        )
    return origin


def _split_origins(value: object) -> object:
    return value.split() if isinstance(value, str) else value


def _check_database(url: str) -> str:
    if parse(url).password is not None:
        raise ValueError("contains a password; put it in a file and set ledger.password_file")
    return url


def _check_collector(url: str) -> str:
    if not re.fullmatch(r"https?://[^?#@\s]+", url):
        raise ValueError("use http://host:4318 or https://…, without a user name or query")
    return url.rstrip("/")


def _check_bucket(url: str) -> str:
    split_url(url)
    return url.rstrip("/")


def _check_endpoint(url: str) -> str:
    if not re.fullmatch(r"https://[^/?#@\s]+/?|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?/?", url):
        raise ValueError("use https://host:port, without a path or user name; http:// only for this machine itself")
    return url.rstrip("/")


Location = Annotated[Path, AfterValidator(_locate)]
PublicFile = Annotated[Path, AfterValidator(_locate), AfterValidator(_find)]
Secret = Annotated[
    SecretFile, BeforeValidator(lambda value: _locate(Path(value)) if isinstance(value, str | Path) else value)
]
PeerUrl = Annotated[str, AfterValidator(_check_address)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_check_origin)], ...], BeforeValidator(_split_origins)
]  # in an environment variable: separated by spaces
DatabaseUrl = Annotated[str, AfterValidator(_check_database)]
BucketUrl = Annotated[str, AfterValidator(_check_bucket)]
Endpoint = Annotated[str, AfterValidator(_check_endpoint)]
CollectorUrl = Annotated[str, AfterValidator(_check_collector)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=3600)]
Role = Annotated[Literal[0, 1], BeforeValidator(lambda value: {"0": 0, "1": 1}.get(str(value), value))]
