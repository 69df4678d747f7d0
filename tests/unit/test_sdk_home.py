"""The home of a device: old or new after a death at any system call, for one owner, one key and one process."""

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit import specifications

from secemb_sdk.errors import (
    ForgottenError,
    HomeError,
    HomeInUseError,
    PinError,
    RatingError,
)
from secemb_sdk.home import files
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.export import export_home
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import Receipt, Traffic
from secemb_sdk.home.records import Intent, Keyed, Record, Stage, Ticket, Written, decode_stage, encode_stage
from secemb_sdk.home.vault import Vault
from secemb_sdk.models import PrivateState
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.session import Marks

TASK, SERVERS = bytes(range(32)), ("https://zero.example:443", "https://one.example:443")
KEY = bytes(range(32))
KEYS = pytest.mark.parametrize("key", [None, KEY[:16], KEY], ids=["plain", "16 bytes", "32 bytes"])
SYSTEM_CALLS = ("open", "write", "fsync", "close", "replace", "unlink")
RECEIPT = Receipt(
    round=3,
    kind="train",
    model_version=2,
    model_digest="ab" * 32,
    sent=(1, 2),
    received=(3, 4),
    slots=12,
    truncated=0,
    complete=True,
    date="2026-01-01T00:00:00+00:00",
)
PRIVATE = PrivateState(
    values=np.array([0.5, -1.25], np.float32),
    first=np.array([1, 2], np.float32),
    second=np.array([3, 4], np.float32),
    steps=7,
)
TICKET = Ticket(
    round=b'{"round":3}',
    ticket="ticket",
    truncated=1,
    traffic=Traffic([5, 6], [7, 8]),
    receipts=0,
    transport="direct",
)
UPLOAD: dict[str, Any] = {
    "session_id": bytes(16),
    "update": (b"zero", b"one"),
    "marks": Marks((b"proof 0", b"proof 1"), b"receipt"),
}
SELECTION = Selection(
    items=np.array([4, 9], np.int64),
    values=np.array([1.5, np.nan], np.float32),
    held_out=np.array([True, False]),
    left_out=0,
)
STAGES: list[Stage] = [
    Intent(bytes(32)),
    Keyed(ticket=TICKET, seed=bytes(32), selection=SELECTION, keys_digest=KEY),
    Written(ticket=TICKET, **UPLOAD, private=PRIVATE, trouble="RowTagError"),
    Written(ticket=replace(TICKET, transport="relayed", route_state=b"announced"), **UPLOAD, private=None),
]


class KilledError(BaseException):
    """The process is gone."""


def open_vault(folder: Path, key: bytes | None = None) -> Vault:
    home = Home(folder, FileCipher(key))
    try:
        vault = Vault(home)
        vault.bind(TASK, SERVERS)
    except BaseException:
        home.close()
        raise
    return vault


def kill_at(patch: pytest.MonkeyPatch, call: int, *, after: bool) -> Callable[[], int]:
    """Let the process die at its n-th system call, before or after it; return how many there were so far."""
    calls = 0

    def mortal(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def act(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call and not after:
                raise KilledError
            if calls > call:
                raise KilledError  # whatever a dead process would do in `finally`
            done = real(*arguments)
            if calls == call:
                raise KilledError
            return done

        return act

    for name in SYSTEM_CALLS:
        patch.setattr(os, name, mortal(name))
    return lambda: calls


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_a_record_is_old_or_new_after_a_death_at_any_system_call(tmp_path: Path, after: bool) -> None:
    path = tmp_path / "record"
    outcomes = []
    for call in range(1, 20):
        files.write_file(path, b"old")
        with pytest.MonkeyPatch.context() as patch:
            count = kill_at(patch, call, after=after)
            try:
                files.write_file(path, b"new")
                survived = True
            except KilledError:
                survived = False
        found = files.read_file(path)
        assert found in (b"old", b"new")
        outcomes.append(found)
        if survived:
            assert found == b"new"
            assert count() < call
            break
        files.write_file(path, b"newer")  # what the dead process left does not stand in the way
        assert files.read_file(path) == b"newer"
    assert survived
    assert b"old" in outcomes


def test_a_write_in_place_would_be_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_in_place(path: Path, data: bytes) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(handle, data)
        os.close(handle)

    monkeypatch.setattr(files, "write_file", write_in_place)
    with pytest.raises(AssertionError):
        test_a_record_is_old_or_new_after_a_death_at_any_system_call(tmp_path, after=True)


def test_a_write_is_durable_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def act(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return act

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    files.write_file(tmp_path / "record", b"data")
    assert calls == ["fsync", "replace", "fsync"]  # the file, its name, the folder that holds the name


def test_the_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "home"
    vault = open_vault(folder)
    vault.log([(1, 5.0)])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_home_that_others_could_enter_is_shut(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    open_vault(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(HomeError, match="cannot use the home"):
        open_vault(tmp_path / "home")


def test_a_second_opener_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    with pytest.raises(HomeInUseError, match="close it first"):
        open_vault(tmp_path)
    vault.close()
    open_vault(tmp_path).close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    open_vault(tmp_path)
    program = (
        "import sys\n"
        "from secemb_sdk.home.encryption import FileCipher\n"
        "from secemb_sdk.home.files import Home\n"
        "Home(sys.argv[1], FileCipher())"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "HomeInUseError" in done.stderr


def test_a_closed_home_is_not_written_to(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    vault.close()
    with pytest.raises(HomeError, match="open it again"):
        vault.log([(1, 5.0)])


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = open_vault(tmp_path)
    vault.log([(1, 5.0)])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(HomeError, match="No space left on device; check the disk"):
            vault.log([(2, 5.0)])
    assert vault.ratings() == {1: 5.0}
    vault.log([(3, 5.0)])
    vault.close()
    assert open_vault(tmp_path).ratings() == {1: 5.0, 3: 5.0}


@KEYS
def test_everything_survives_a_restart(tmp_path: Path, key: bytes | None) -> None:
    vault = open_vault(tmp_path, key)
    vault.log([(318, 5.0), (2, 0.5)])
    vault.log([(318, 3.3)])
    vault.end_session(RECEIPT, receipts=0, private=PRIVATE, forgotten=0)
    vault.keep_dense("dense", 4, b"numbers!")
    held_out = vault.hold_out_key
    vault.close()
    again = open_vault(tmp_path, key)
    assert again.ratings() == {318: 3.3, 2: 0.5}
    assert again.receipts() == [RECEIPT]
    assert again.hold_out_key == held_out
    assert (again.dense("dense", 4), again.dense("dense", 5), again.dense("table-dense", 4)) == (
        b"numbers!",
        None,
        None,
    )
    private = again.private()
    assert private is not None
    assert private.steps == PRIVATE.steps
    assert all(np.array_equal(getattr(private, name), getattr(PRIVATE, name)) for name in ("values", "first", "second"))


@pytest.mark.parametrize("stage", STAGES, ids=["wish", "keyed", "written", "written without training"])
def test_a_session_survives_a_restart_at_every_stage(stage: Stage) -> None:
    record = encode_stage(stage)
    again = encode_stage(decode_stage(Record.decode(record.encode())))
    assert again.encode() == record.encode()


def test_a_written_session_holds_no_seed(tmp_path: Path) -> None:
    vault, seed = open_vault(tmp_path), bytes(range(100, 132))
    vault.keep_session(Keyed(ticket=TICKET, seed=seed, selection=SELECTION, keys_digest=KEY), forgotten=0)
    assert seed in (tmp_path / "session").read_bytes()
    vault.keep_session(STAGES[2], forgotten=0)
    assert not any(seed in path.read_bytes() for path in tmp_path.iterdir())


def test_an_encrypted_home_shows_nothing(tmp_path: Path) -> None:
    vault = open_vault(tmp_path, KEY)
    vault.log([(123456789, 5.0)])
    vault.keep_session(STAGES[2], forgotten=0)
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (np.int64(123456789).tobytes(), b"ticket", b"zero.example", TASK.hex().encode(), KEY, KEY[:16]):
        assert secret not in data


def test_a_home_belongs_to_one_task_and_its_servers(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    with pytest.raises(PinError, match="another task"):
        vault.bind(bytes(32), SERVERS)
    with pytest.raises(PinError, match="other servers"):
        vault.bind(TASK, (SERVERS[1], SERVERS[0]))
    vault.bind(TASK, SERVERS)


def test_a_session_that_ends_twice_leaves_one_receipt(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    for _ in range(3):
        vault.end_session(RECEIPT, receipts=0, private=PRIVATE, forgotten=0)
    assert vault.receipts() == [RECEIPT]
    assert vault.session() is None


def test_forgetting_erases_the_private_part_and_leaves_receipts(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    vault.log([(77, 4.5)])
    vault.end_session(RECEIPT, receipts=0, private=PRIVATE, forgotten=0)
    vault.keep_session(STAGES[1], forgotten=0)
    vault.note(Misconduct.ROWS, "2026-01-01T00:00:00+00:00")
    vault.forget()
    assert (dict(vault.ratings()), vault.private(), vault.session()) == ({}, None, None)
    assert not any((tmp_path / name).exists() for name in ("ratings", "private", "session"))
    assert vault.receipts() == [RECEIPT]
    assert set(vault.detections()) == {"rows"}
    vault.forget(receipts=True)
    assert (vault.receipts(), vault.detections()) == ([], {})
    assert not any((tmp_path / name).exists() for name in ("receipts", "detections"))


@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_forgetting_erases_what_a_killed_process_left_half_written(tmp_path: Path, call: int, after: bool) -> None:
    vault = open_vault(tmp_path)
    vault.log([(77, 4.5)])
    writes: list[Callable[[], None]] = [
        lambda: vault.log([(78, 1.5)]),
        lambda: vault.keep_session(STAGES[1], forgotten=0),
    ]
    for write in writes:
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KilledError):
            kill_at(patch, call, after=after)
            write()
    vault.forget(receipts=True)
    left = {path.name.removesuffix(".new") for path in tmp_path.iterdir()}
    assert not left & {"ratings", "private", "session", "receipts"}


def test_a_round_that_began_before_forgetting_writes_nothing_after(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    began = vault.forgotten
    vault.forget()
    with pytest.raises(ForgottenError):
        vault.keep_session(STAGES[2], forgotten=began)
    with pytest.raises(ForgottenError):
        vault.end_session(RECEIPT, receipts=0, private=PRIVATE, forgotten=began)
    assert (vault.session(), vault.private()) == (None, None)


def test_an_export_is_everything_as_plain_data(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    vault.log([(77, 4.1)])
    vault.end_session(RECEIPT, receipts=0, private=PRIVATE, forgotten=0)
    vault.keep_session(STAGES[2], forgotten=0)
    found = json.loads(json.dumps(export_home(vault)))
    assert found["ratings"] == [{"item": 77, "rating": 4.1}]
    assert found["private"]["values"] == [0.5, -1.25]
    assert [Receipt.from_json(one) for one in found["receipts"]] == [RECEIPT]
    assert found["session"] == {"stage": "update", "round": '{"round":3}'}
    assert found["task"] == TASK.hex()


@pytest.mark.parametrize("item", [-1, 2**31, True, 1.0, "1", None])
def test_what_is_no_item_is_refused_and_not_repeated(tmp_path: Path, item: Any) -> None:
    with pytest.raises(RatingError, match="whole number, 0 or greater"):
        open_vault(tmp_path).log([(item, 5.0)])


def test_an_item_outside_the_catalogue_is_refused_as_soon_as_the_task_is_known(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    vault.log([(specifications.TASK.items, 5.0)])
    vault.keep_task(specifications.TASK)
    for item in (specifications.TASK.items, 2**31 - 1):
        with pytest.raises(RatingError, match=f"items 0 to {specifications.TASK.items - 1}"):
            vault.log([(1, 5.0), (item, 5.0)])
        with pytest.raises(RatingError, match="not in the catalogue"):
            vault.log_events([(item, 1.0)], now=2.0)
    vault.log([(specifications.TASK.items - 1, 4.0)])
    assert vault.ratings() == {specifications.TASK.items: 5.0, specifications.TASK.items - 1: 4.0}


@pytest.mark.parametrize("rating", [float("nan"), float("inf"), 1e39, "good", None])
def test_what_is_no_rating_is_refused(tmp_path: Path, rating: Any) -> None:
    vault = open_vault(tmp_path)
    with pytest.raises(RatingError, match="finite"):
        vault.log([(1, rating)])
    assert vault.ratings() == {}


def test_nothing_that_is_stored_shows_in_a_repr(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    vault.log([(4711, 4.25)])
    shown = " ".join(
        repr(one) for one in (vault, vault._home, encode_stage(STAGES[1]), *STAGES, SELECTION, PRIVATE, TICKET)
    )
    for secret in ("4711", "4.25", "ticket", "zero", str(tmp_path), "1.5", "-1.25"):
        assert secret not in shown.replace("TICKET", "")
