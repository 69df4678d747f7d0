"""What `secemb check` says about the key that devices seal to."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.sessions import make_task

from secemb_server1.relay_keys import LIFE_SECONDS, RelayKeys
from secemb_shared.messages.relay_key import RelayKey
from secemb_tools.operate.relay_keys import judge_held, judge_shown

IDENTITY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TASK = make_task(relay_key=IDENTITY.public_key().public_bytes_raw().hex())
NOW, DAY = 1_800_000_000.0, 86_400
KEY = RelayKey(public=bytes(32), not_before=int(NOW), not_after=int(NOW) + LIFE_SECONDS)


@pytest.fixture
def keys(tmp_path: Path) -> RelayKeys:
    return RelayKeys(tmp_path / "relay-keys.json", IDENTITY, TASK.task_id)


def test_a_key_that_lasts_is_in_order_on_both_sides(keys: RelayKeys) -> None:
    announcement = keys.announcement(NOW)
    for finding in (judge_held(keys.held(), NOW), judge_shown(TASK, announcement, NOW)):
        assert (finding.status, finding.check) == ("ok", "relay key")
        assert "valid until 2027-04-15" in finding.text


def test_a_server_1_that_has_never_run_has_none_and_needs_none(keys: RelayKeys) -> None:
    assert judge_held(keys.held(), NOW).status == "ok"
    keys.rotate(NOW, lead=DAY)
    assert judge_held(keys.held(), NOW).status == "ok"


@pytest.mark.parametrize(("left", "status"), [(15 * DAY, "ok"), (15 * DAY - 1, "warn"), (1, "warn")])
def test_a_key_that_ends_soon_is_named_with_the_fix(keys: RelayKeys, left: int, status: str) -> None:
    announcement = keys.announcement(NOW)
    late = NOW + LIFE_SECONDS - left
    for finding in (judge_held(keys.held(), late), judge_shown(TASK, announcement, late)):
        assert finding.status == status
        assert ("relay-key rotate" in finding.fix) == (status == "warn")


def test_a_short_key_is_not_late_when_it_is_new(keys: RelayKeys) -> None:
    keys.rotate(NOW, life=6 * DAY)
    for days, status in ((0, "ok"), (5, "ok"), (5.1, "warn")):
        assert judge_held(keys.held(), NOW + days * DAY).status == status


@pytest.mark.parametrize("now", [NOW - 1, NOW + LIFE_SECONDS])
def test_a_key_whose_time_it_is_not_points_to_the_clocks(now: float) -> None:
    finding = judge_shown(TASK, KEY.announce(IDENTITY, TASK.task_id), now)
    assert (finding.status, finding.fix) == ("fail", "synchronise both clocks with NTP")


@pytest.mark.parametrize("wrong", [b"", bytes(112), KEY.announce(Ed25519PrivateKey.generate(), TASK.task_id)])
def test_a_key_that_the_tasks_server_1_has_not_signed_fails(wrong: bytes) -> None:
    finding = judge_shown(TASK, wrong, NOW)
    assert finding.status == "fail"
    assert "an identity other than the task's" in finding.text
