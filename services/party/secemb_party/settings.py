"""Settings of a server: one TOML file, and `SECEMB_` variables that override it. Unknown settings are refused.

A variable is named after its key: `SECEMB_PEER__URL` is `url` in `[peer]`. Secrets are files, named in the settings and
read when the server starts. Relative paths are relative to the directory of the settings file.
"""

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from sqlalchemy import make_url

from secemb_party.errors import SettingsError
from secemb_party.logs import Format, Level
from secemb_party.room import MEMORY, VERSIONS
from secemb_party.setting_types import (
    BucketUrl,
    CollectorUrl,
    DatabaseUrl,
    Endpoint,
    Location,
    Origins,
    PeerUrl,
    Port,
    PublicFile,
    Role,
    Seconds,
    Secret,
    relative_to,
)

PREFIX = "SECEMB_"
DELIMITER = "__"


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Listening(Section):
    """Where a listener is, and its certificate, which it has unless a proxy on this machine ends TLS."""

    host: str = "127.0.0.1"
    port: Port
    tls_cert: PublicFile | None = None
    tls_key: Secret | None = None


class Devices(Listening):
    """The listener that devices call."""

    port: Port = 8440
    open_enrolment: bool = False
    body_seconds: Seconds = 60
    body_bytes_per_second: Annotated[int, Field(ge=0)] = 1024
    connections: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    reads_per_minute: Annotated[int, Field(ge=1, le=100_000)] = 60
    allowed_origins: Origins = ()


class Peer(Section):
    """The channel to the peer: server 0 calls, server 1 listens."""

    url: PeerUrl | None = None
    token_file: Secret | None = None
    host: str | None = None
    port: Port | None = None
    token_hash_file: Secret | None = None
    cert: PublicFile
    key: Secret
    peer_ca: PublicFile
    answer_seconds: Seconds = 60


class Ledger(Section):
    """The database."""

    url: DatabaseUrl | None = None
    password_file: Secret | None = None
    migrate: bool = True
    shared: bool = False  # with other processes of this server: its replicas


class Task(Section):
    """The task to train, and its tickets."""

    file: PublicFile
    catalogue_file: PublicFile | None = None  # None: catalogue.csv beside the task's file
    ticket_key_file: Secret | None = None
    ticket_public_file: PublicFile | None = None
    identity_file: Secret | None = None  # of server 0; server 1's identity is relay.identity_file


class Relay(Section):
    """Server 1's part in the relayed transport: the identity named in the task."""

    identity_file: Secret | None = None


class Work(Section):
    """The worker threads around the kernel."""

    threads: Annotated[int, Field(ge=1, le=256)] = 2
    memory_bytes: Annotated[int, Field(ge=1)] = MEMORY
    kernel_threads: Annotated[int, Field(ge=1, le=256)] = 1


class Compute(Section):
    """Where the kernel runs: in threads of this process, or on workers at Ray."""

    engine: Literal["threads", "ray"] = "threads"
    address: str = "auto"
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    memory_bytes: Annotated[int, Field(ge=1)] | None = None


class Operator(Listening):
    """The operator's listener: the page and the operator API; without a file of tokens it is off."""

    port: Port = 8442
    tokens_file: Secret | None = None


class Metrics(Section):
    """The listener that Prometheus calls. It requires no password, hence the loopback address."""

    host: str = "127.0.0.1"
    port: Port = 8443


class Rounds(Section):
    """How server 0 conducts rounds, and how long each server keeps devices' messages."""

    evaluate_every: Annotated[int, Field(ge=0)] = 0
    survey_first: bool = False
    joins_per_second: Annotated[float, Field(gt=0, le=100_000)] = 20
    seat_seconds: Seconds = 5
    seal_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 10
    straggler_factor: Annotated[float, Field(ge=0, le=1e6)] = 2
    keep_bodies_rounds: Annotated[int, Field(ge=1)] = 3
    keep_rows_days: Annotated[int, Field(ge=1)] = 90
    keep_tasks: Annotated[int, Field(ge=0)] | None = None


class Panel(Section):
    """Devices whose evaluations the operator of server 0 trusts; without a file there is no panel."""

    file: PublicFile | None = None
    every: Annotated[int, Field(ge=2)] = 20
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.05
    roll_back: bool = False


class Storage(Section):
    """Where bodies, shares and models are kept, how many versions of the model, and space on the disk of `data_dir`."""

    url: BucketUrl | None = None  # None: shares and models are files in data_dir
    endpoint: Endpoint | None = None  # None: Amazon S3
    region: str = "us-east-1"
    access_key_file: Secret | None = None  # None: AWS_ variables, or the machine's own role
    secret_key_file: Secret | None = None
    bodies: Literal["ledger", "store"] = "ledger"  # "store": beside shares and models
    min_free_bytes: Annotated[int, Field(ge=0)] = 1 << 28
    keep_versions: Annotated[int, Field(ge=1, le=100_000)] = VERSIONS


class Tracing(Section):
    """Traces for OpenTelemetry; off without an endpoint."""

    endpoint: CollectorUrl | None = None
    sample: Annotated[float, Field(gt=0, le=1)] = 1


class Logs(Section):
    """The level and format of logs."""

    level: Level = "info"
    format: Format = "json"


# By role: required settings, and settings of the other server.
_NEEDED = {
    0: {
        "peer.url": "set it to the address of server 1's peer listener, https://host:port",
        "peer.token_file": "set it to the file with the token whose hash server 1 has",
        "task.ticket_key_file": "set it to the file with the private key that signs tickets",
    },
    1: {
        "peer.host": "set it to the address at which server 0 reaches this server",
        "peer.port": "set it to the port at which server 0 reaches this server",
        "peer.token_hash_file": "set it to the file with the hash of server 0's token",
        "task.ticket_public_file": "set it to the file with server 0's public ticket key",
    },
}
_FAULTS = {"extra_forbidden": "unknown setting; remove it", "missing": "this setting is required"}
_ONLY_FOR: dict[int, tuple[str, ...]] = {
    0: (
        "devices.open_enrolment",
        "devices.reads_per_minute",
        "rounds.evaluate_every",
        "rounds.survey_first",
        "rounds.joins_per_second",
        "rounds.seat_seconds",
        "rounds.seal_share",
        "rounds.grace_seconds",
        "rounds.straggler_factor",
        "panel.file",
        "panel.every",
        "panel.margin",
        "panel.roll_back",
        "task.identity_file",
    ),
    1: ("relay.identity_file",),
}


class Settings(Section):
    """All settings of a server."""

    role: Role
    data_dir: Location
    devices: Devices = Devices()
    peer: Peer
    ledger: Ledger = Ledger()
    task: Task
    relay: Relay = Relay()
    work: Work = Work()
    compute: Compute = Compute()
    operator: Operator = Operator()
    metrics: Metrics = Metrics()
    rounds: Rounds = Rounds()
    panel: Panel = Panel()
    storage: Storage = Storage()
    logs: Logs = Logs()
    tracing: Tracing = Tracing()

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        faults = [*self._missing(), *self._misplaced(), *self._shared_ports()]
        for name, at in (("devices", self.devices), ("operator", self.operator)):
            if (at.tls_cert is None) != (at.tls_key is None):
                faults.append(f"{name}.tls_cert and {name}.tls_key: set both, or leave both out behind a TLS proxy")
        if self.ledger.password_file is not None and self.ledger.url is None:
            faults.append("ledger.password_file: set ledger.url as well, or remove it")
        if self.compute.engine == "threads" and (unused := self.compute.model_fields_set - {"engine"}):
            faults.append(f'compute.{min(unused)}: only used with engine = "ray"; remove it, or set compute.engine')
        if self.rounds.evaluate_every == 1:
            faults.append(
                "rounds.evaluate_every: 1 would leave no rounds for training; set 2 or more, or 0 to disable"
                " evaluations"
            )
        faults += self._storage_faults()
        if self.ledger.shared and (self.ledger.url or "sqlite").startswith("sqlite"):
            faults.append("ledger.shared: replicas need PostgreSQL, because SQLite has one writer; set ledger.url")
        if self.panel.file is not None and self.devices.open_enrolment:
            faults.append("panel.file: devices have no names with devices.open_enrolment; remove one of the two")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _missing(self) -> Iterator[str]:
        for key, fix in _NEEDED[self.role].items():
            section, _, name = key.partition(".")
            if getattr(getattr(self, section), name) is None:
                yield f"{key}: required on server {self.role}; {fix}"

    def _misplaced(self) -> Iterator[str]:
        other = 1 - self.role
        for key in (*_NEEDED[other], *_ONLY_FOR[other]):
            section, _, name = key.partition(".")
            if name in getattr(self, section).model_fields_set:
                yield f"{key}: only used by server {other}; remove it"

    def _storage_faults(self) -> Iterator[str]:
        storage = self.storage
        if (storage.access_key_file is None) != (storage.secret_key_file is None):
            yield "storage.access_key_file and storage.secret_key_file: set both, or neither to use AWS_ variables"
        for name in ("endpoint", "region", "access_key_file", "secret_key_file"):
            if storage.url is None and name in storage.model_fields_set:
                yield f"storage.{name}: set storage.url as well, or remove it"

    def _shared_ports(self) -> Iterator[str]:
        users: dict[tuple[str | None, int | None], str] = {}
        for name in ("devices", "peer", "operator", "metrics"):
            at = getattr(self, name)
            first = users.setdefault((at.host, at.port), name)
            if first != name:
                yield f"{name}.port: port {at.port} is already used by [{first}]; give each listener its own port"

    def ledger_url(self) -> str:
        """Return the database URL including its password; do not show it."""
        if self.ledger.url is None:
            return f"sqlite:///{self.data_dir.absolute() / 'ledger.db'}"
        if self.ledger.password_file is None:
            return self.ledger.url
        url = make_url(self.ledger.url).set(password=self.ledger.password_file.text())
        return url.render_as_string(hide_password=False)


def load_settings(path: Path, environ: Mapping[str, str]) -> Settings:
    """Return the settings in a file, overridden by variables, or raise `SettingsError` listing all faults."""
    if not path.is_file():
        raise SettingsError(f"{path} does not exist; create a settings file with `secemb init`")
    variables = _read_variables(environ)
    try:
        with relative_to(path.parent.absolute()):
            return Settings(**_merge(tomllib.loads(path.read_text("utf-8")), variables))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"cannot read {path}; check that it is UTF-8 and readable by this user") from None
    except ValidationError as error:
        raise SettingsError(
            "\n".join([f"invalid settings in {path} or {PREFIX} variables:", *_describe(error)])
        ) from None


def known_variables() -> list[str]:
    """Return the names of all valid variables."""
    return list(_keys())


def _keys() -> dict[str, list[str]]:
    """Return the place of each variable in the settings, by name."""
    found: dict[str, list[str]] = {}
    for name, field in Settings.model_fields.items():
        keys = list(getattr(field.annotation, "model_fields", ()))  # None: the setting is not a section
        for place in [[name, key] for key in keys] or [[name]]:
            found[f"{PREFIX}{DELIMITER.join(place)}".upper()] = place
    return found


def _read_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the variables, nested as in the file; refuse unknown names."""
    keys = _keys()
    ours = {name: value for name, value in environ.items() if name.upper().startswith(PREFIX)}
    if unknown := [name for name in ours if name.upper() not in keys]:
        raise SettingsError("\n".join(_suggest(name, list(keys)) for name in sorted(unknown)))
    found: dict[str, Any] = {}
    for name, value in ours.items():
        *section, key = keys[name.upper()]
        (found.setdefault(section[0], {}) if section else found)[key] = value
    return found


def _suggest(name: str, known: list[str]) -> str:
    close = get_close_matches(name.upper(), known, n=1)
    return f"{name}: unknown setting; " + (f"did you mean {close[0]}?" if close else "unset it")


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _describe(error: ValidationError) -> Iterator[str]:
    """Yield a line for each fault, without the value, which may be a secret entered by mistake."""
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        key = ".".join(map(str, fault["loc"]))
        text = _FAULTS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        yield f"{key}: {text}" if key else text
