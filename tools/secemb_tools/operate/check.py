"""`secemb check`: everything that can be checked before a server starts, each with the fix."""

import os
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from rich.console import Console

from secemb_party.accountant import epsilon_known
from secemb_party.assembly import find_operators, ticket_public_key
from secemb_party.budget import lines_of
from secemb_party.errors import (
    AccountantMissingError,
    AccountingError,
    LedgerError,
    SchemaMissingError,
    SchemaOlderError,
    SettingsError,
)
from secemb_party.ledger import Ledger
from secemb_party.operators import OperatorRole
from secemb_party.room import Space
from secemb_party.settings import Settings
from secemb_party.storage.copies import catalogue_path, open_catalogue
from secemb_shared.errors import SecEmbError
from secemb_shared.kernel import native_available
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.spec import TRAIN
from secemb_tools.errors import OperationError
from secemb_tools.kernel import describe
from secemb_tools.operate.certificate import public_bytes, read_certificate
from secemb_tools.operate.connection_checks import (
    SOON,
    check_dates,
    check_listeners,
    check_peer,
)
from secemb_tools.operate.findings import CheckReport, Finding, fail, ok, warn
from secemb_tools.operate.recovery import data_faults
from secemb_tools.operate.relay_keys import check_relay
from secemb_tools.operate.settings import settings_at
from secemb_tools.operate.task_files import read_task
from secemb_tools.operate.tasks import check_budgets
from secemb_tools.output import show_json


async def report(path: Path, *, offline: bool, ca: Path | None, as_json: bool) -> bool:
    """Print each finding and return whether the server can run."""
    found = []
    console = Console(highlight=False, soft_wrap=True)
    async for finding in check_all(path, offline=offline, ca=ca):
        found.append(finding)
        if not as_json:
            console.print(finding.line())
    sound = all(finding.status != "fail" for finding in found)
    if as_json:
        show_json(asdict(CheckReport(sound, found)))
    return sound


_HASH = re.compile(r"[0-9a-f]{64}")


async def check_all(path: Path, *, offline: bool, ca: Path | None) -> AsyncIterator[Finding]:
    """Yield a finding for each check; without readable settings nothing else can be checked.

    With `ca`, certificates of the listeners must be issued by an authority in that file.
    """
    try:
        settings = settings_at(path)
    except SettingsError as error:
        for line in str(error).splitlines():
            yield fail("settings", line, "correct the settings file")
        return
    yield ok("settings", f"role {settings.role}; all files exist, and secrets are not readable by others")
    for part in (_check_task, _check_hashes, _check_operators, _check_certificates, _check_data):
        for finding in part(settings):
            yield finding
    for finding in check_listeners(settings, ca):
        yield finding
    yield await _check_ledger(settings)
    async for finding in _check_contents(settings):
        yield finding
    yield _check_kernel()
    if not offline:
        async for finding in check_peer(settings):
            yield finding
    async for finding in check_relay(settings, offline=offline):
        yield finding


def _check_privacy(task: TaskSpec) -> Iterator[Finding]:
    if task.privacy is None:
        return
    try:
        check_budgets(task)
    except AccountantMissingError as error:
        yield fail("privacy", "the privacy cost of this task cannot be computed on this machine", str(error))
    except (AccountingError, OperationError) as error:
        yield fail("privacy", str(error), "create the task again: secemb task create --privacy")
    else:
        promise = f"for each {task.privacy.unit}: ε {task.privacy.train.epsilon}, δ {task.privacy.delta}"
        if task.privacy.sampling_rate:
            line = lines_of(task)[TRAIN]
            known = epsilon_known(line.terms, line.rounds())
            promise += f" against anyone who does not know which devices took part, ε {known:.3g} against those who do"
        yield ok("privacy", promise)


def _check_task(settings: Settings) -> Iterator[Finding]:
    try:
        task = read_task(settings.task.file)
    except SecEmbError as error:
        yield fail("task", f"{settings.task.file}: {error}", "copy the file that secemb task create wrote, unchanged")
    else:
        yield ok("task", f"{task.name}, id {task.task_id.hex()}")
        yield from _check_catalogue(settings, task)
        yield from _check_privacy(task)
    try:
        ticket_public_key(settings)
    except SettingsError as error:
        yield fail("ticket key", str(error), "see above")
    else:
        yield ok("ticket key", "an Ed25519 key")


def _check_catalogue(settings: Settings, task: TaskSpec) -> Iterator[Finding]:
    path = catalogue_path(settings.task.file, settings.task.catalogue_file)
    try:
        found = open_catalogue(task, path)
    except SettingsError as error:
        said, _, fix = str(error).partition("; ")
        yield fail("catalogue", said, fix)
    else:
        if found is not None:
            yield ok("catalogue", f"{path} is the task's, {found.size:,} bytes")


def _check_hashes(settings: Settings) -> Iterator[Finding]:
    file = settings.peer.token_hash_file
    if file is not None and not all(_HASH.fullmatch(line) for line in file.text().split()):
        fix = "it must be 64 hexadecimal digits, as written by secemb"
        yield fail("peer.token_hash_file", "not the hash of a token", fix)


def _check_operators(settings: Settings) -> Iterator[Finding]:
    try:
        operators, now = find_operators(settings), datetime.now(UTC).timestamp()
    except SettingsError as error:
        yield fail("operators", *str(error).split("; ", 1))
        return
    if operators is None:
        return
    active = [one for one in operators.all() if one.active(now)]
    admins = [one for one in active if one.role is OperatorRole.ADMIN]
    if any(one.expires_at is None or one.expires_at - now > SOON.total_seconds() for one in admins):
        yield ok("operators", f"active tokens: {len(active)}, of which admin: {len(admins)}")
    else:
        fix = "secemb operator add NAME --role admin"
        yield warn("operators", f"no admin token is valid for another {SOON.days} days", fix)


def _check_certificates(settings: Settings) -> Iterator[Finding]:
    mine, theirs = "own certificate", "peer certificate"
    yield check_dates(mine, settings.peer.cert, "run secemb pair rotate, then exchange pair files again")
    yield check_dates(theirs, settings.peer.peer_ca, "ask the other operator for a new pair file")
    if settings.peer.cert.with_suffix(".next.crt").exists():
        fix = "run secemb pair switch once the other server has imported this server's pair file"
        yield warn("next certificate", "created by secemb pair rotate, not in use yet", fix)
    try:
        held = public_bytes(read_certificate(settings.peer.cert.read_bytes()))
        key = load_pem_private_key(settings.peer.key.content, password=None)
        fits = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) == held
    except (ValueError, OperationError):
        fits = False
    if not fits:
        yield fail(
            "peer key",
            "the key does not belong to the certificate",
            "restore both, or run secemb pair rotate and secemb pair switch --now",
        )


def _check_data(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    probe = folder / f".check-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        yield fail(
            "data", f"{folder}: {error.strerror}", f"make the service's user its owner: chown -R secemb {folder}"
        )
        return
    if folder.stat().st_mode & 0o007:
        yield warn("data", f"{folder} is readable by other users", f"chmod 700 {folder}")
    else:
        yield ok("data", f"{folder} is writable")
    space = Space(folder, reserve=settings.storage.min_free_bytes, ledger_full=lambda: False)
    if (shortage := space.shortage()) is not None:
        yield warn("space", *shortage.split("; ", 1))


async def _check_ledger(settings: Settings) -> Finding:
    place = "SQLite" if settings.ledger.url is None else settings.ledger.url.split(":", 1)[0]
    try:
        async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
            await ledger.ping()
    except (SchemaMissingError, SchemaOlderError) as error:
        if settings.ledger.migrate:
            return ok("ledger", f"{place}: tables are created or upgraded at startup")
        return fail("ledger", str(error), "secemb ledger upgrade")
    except LedgerError as error:
        return fail("ledger", f"{place}: {error}", "check [ledger] url and password_file; is the database running?")
    return ok("ledger", f"{place}: reachable, schema up to date")


async def _check_contents(settings: Settings) -> AsyncIterator[Finding]:
    """Compare the data directory with the ledger, if the server has ever been started."""
    try:
        task = read_task(settings.task.file)
        async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
            faults = await data_faults(settings, task, ledger)
    except SchemaMissingError:
        faults = []
    except SecEmbError:
        return  # already reported above
    for fault in faults:
        yield fail(fault.check, fault.text, fault.fix)
    if not faults:
        yield ok("contents", "models, shares and optimiser match the ledger")


def _check_kernel() -> Finding:
    words = describe().removeprefix("kernel: ")
    if native_available():
        return ok("kernel", words)
    return warn("kernel", words, "install a C compiler and reinstall secemb")
