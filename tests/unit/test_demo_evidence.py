"""What the demonstration says a server saw is measured: what is wrong in a ledger shows."""

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.unit.sessions import make_task

from secemb_party.ledger import Ledger
from secemb_tools import simulate
from secemb_tools.demo.evidence import ServerView, Traffic, total_of, view_of
from secemb_tools.demo.result import DemoResult, server_views
from secemb_tools.local import Service, process
from secemb_tools.transport import Transport

TASK = make_task()
SIZE = TASK.items * TASK.row_width * TASK.ring.element_bytes
RANDOM = np.random.default_rng(1)
Session = tuple[bytes, bytes]  # keys and update


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a server's directory with the tables of a ledger and nothing in them."""
    return make_folder(tmp_path / "server")


def make_folder(folder: Path) -> Path:
    (folder / "data" / "shares").mkdir(parents=True)

    async def make() -> None:
        async with await Ledger.open(f"sqlite:///{folder}/data/ledger.db", migrate=True):
            pass

    asyncio.run(make())
    return folder


def fill(folder: Path, sessions: Iterable[Session], *, kind: str = "train") -> None:
    """Store sessions as a server does."""
    with closing(sqlite3.connect(folder / "data" / "ledger.db")) as ledger:
        number = ledger.execute("SELECT COUNT(*) FROM rounds").fetchone()[0]
        round_id, task_id = hashlib.sha256(bytes([number])).digest(), bytes(32)
        ledger.execute("INSERT OR IGNORE INTO tasks (task_id, spec, added_at) VALUES (?, ?, 0)", (task_id, b"{}"))
        columns = "round_id, task_id, number, kind, model_version, spec, state, opened_at, join_until, upload_until"
        values = (round_id, task_id, number, kind, 0, b"{}", "published", 0, 0, 0)
        ledger.execute(f"INSERT INTO rounds ({columns}) VALUES ({', '.join('?' * len(values))})", values)
        for keys, update in sessions:
            name = RANDOM.bytes(16)
            known = (name, round_id, name * 2, 0, hashlib.sha256(keys).digest(), hashlib.sha256(update).digest())
            ledger.execute(
                "INSERT INTO sessions (session_id, round_id, device, admitted_at, keys_digest, update_digest)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                known,
            )
            for part, body in (("keys", keys), ("update", update)):
                ledger.execute("INSERT INTO bodies VALUES (?, ?, ?)", (name, part, body))
        ledger.commit()


def random_sessions(count: int, *, keys: int = 500, update: int = 300) -> list[Session]:
    return [(RANDOM.bytes(keys), RANDOM.bytes(update)) for _ in range(count)]


def view(folder: Path) -> ServerView:
    return view_of(folder, TASK, role=0, cpu_seconds=1.5)


def test_sessions_messages_and_lengths_are_counted_in_the_ledger(folder: Path) -> None:
    fill(folder, random_sessions(5))
    fill(folder, random_sessions(3))
    found = view(folder)
    assert (found.sessions, found.messages, found.lengths, found.repeated) == (8, 16, 1, 0)
    assert (found.keys_bytes, found.update_bytes) == (500, 300)
    assert found.compressed > 0.99
    assert found.good


def test_an_evaluation_may_have_another_length(folder: Path) -> None:
    fill(folder, random_sessions(3))
    fill(folder, random_sessions(3, update=70), kind="evaluate")
    found = view(folder)
    assert (found.lengths, found.update_bytes, found.messages) == (1, 300, 12)


def test_a_server_that_holds_nothing_has_shown_nothing(folder: Path) -> None:
    assert not view(folder).good


@pytest.mark.parametrize("odd", [{"keys": 501}, {"update": 301}])
def test_a_device_whose_messages_are_longer_shows(folder: Path, odd: dict[str, int]) -> None:
    fill(folder, random_sessions(3) + random_sessions(1, **odd))
    assert view(folder).lengths == 2
    assert not view(folder).good


def test_a_message_that_is_there_twice_shows(folder: Path) -> None:
    fill(folder, random_sessions(3))
    fill(folder, random_sessions(3)[:1] * 2)
    assert view(folder).repeated == 2
    assert not view(folder).good


def test_messages_in_the_clear_show(folder: Path) -> None:
    plain = np.zeros(75, np.float32)
    plain[::9] = 0.5
    fill(folder, [(np.arange(person, person + 125, dtype="<u4").tobytes(), plain.tobytes()) for person in range(9)])
    assert view(folder).compressed < 0.5


def test_a_share_looks_like_nothing_and_two_of_them_are_the_sum(tmp_path: Path) -> None:
    folders = [make_folder(tmp_path / name) for name in ("zero", "one")]
    total = np.zeros(SIZE // 4, "<u4")
    total[::4] = 7
    first = RANDOM.integers(0, 2**32, total.size, dtype="<u4")
    for folder, share in zip(folders, (first, total - first), strict=True):
        (folder / "data" / "shares" / "a.share").write_bytes(share.tobytes())
        assert view(folder).share_compressed == pytest.approx(1, abs=0.05)
        assert view(folder).share_ones == pytest.approx(0.5, abs=0.05)
    found = total_of(folders, TASK)
    assert found is not None
    assert found.zeros == pytest.approx(0.75, abs=0.01)
    assert found.compressed < 0.2


def test_a_share_in_the_clear_shows(folder: Path) -> None:
    (folder / "data" / "shares" / "a.share").write_bytes(bytes(SIZE))
    assert view(folder).share_ones == 0
    assert view(folder).share_compressed == pytest.approx(0, abs=0.1)


def test_a_system_that_does_not_tell_of_processor_time_costs_no_more_than_that_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Service, "pid", os.getpid())
    server = Service(0, folder, process.Ports(1, 2, 3))
    if Path("/proc/self/stat").exists():
        assert server.cpu_seconds() is not None
    monkeypatch.setattr(process, "_PROC", folder / "proc")
    assert server.cpu_seconds() is None
    silent = view_of(folder, TASK, role=0, cpu_seconds=server.cpu_seconds())
    result = DemoResult(
        run=simulate(devices=6, cohort=3, rounds=1, items=60),
        rounds=[],
        transport=Transport.DIRECT,
        ratings=(1, 2),
        traffic=Traffic(sent=1, received=1, full_sent=1, full_received=1),
        servers=[silent, view(folder)],
        total=None,
        troubled=0,
        seconds=1.0,
    )
    assert server_views(result)[-1] == ("processor time", "-", "1.5 s")
