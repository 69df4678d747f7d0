"""Server 1's relay keys: made by themselves, changed by the operator, erased when they have ended."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.sessions import make_task

from secemb_party.errors import OutdatedRelayKeyError, SettingsError
from secemb_server1.relay_keys import ACTIVE, EXPIRED, LIFE_SECONDS, PENDING, RelayKeys
from secemb_shared.messages.relay_key import RelayKey

IDENTITY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TASK = make_task(relay_key=IDENTITY.public_key().public_bytes_raw().hex())
NOW = 1_800_000_000.0


@pytest.fixture
def keys(tmp_path: Path) -> RelayKeys:
    return RelayKeys(tmp_path / "data" / "relay-keys.json", IDENTITY, TASK.task_id)


def announced(keys: RelayKeys, now: float) -> RelayKey:
    return RelayKey.read(TASK, keys.announcement(now))


def test_the_first_announcement_makes_a_key_and_later_ones_show_it(keys: RelayKeys) -> None:
    first = announced(keys, NOW)
    assert announced(keys, NOW + 1000) == first
    assert keys.private(first.key_id, NOW).public_key().public_bytes_raw() == first.public
    assert [key.state(NOW) for key in keys.held()] == [ACTIVE]


def test_a_key_is_replaced_before_it_ends(keys: RelayKeys) -> None:
    first = announced(keys, NOW)
    late = NOW + LIFE_SECONDS * 0.7
    second = announced(keys, late)
    assert second != first
    keys.private(first.key_id, late)  # still opened
    with pytest.raises(OutdatedRelayKeyError):
        keys.private(first.key_id, first.not_after)


def test_a_rotation_is_seen_by_a_server_that_runs(keys: RelayKeys, tmp_path: Path) -> None:
    first = announced(keys, NOW)
    other = RelayKeys(tmp_path / "data" / "relay-keys.json", IDENTITY, TASK.task_id)
    made = other.rotate(NOW + 5, overlap=10).announced
    assert announced(keys, NOW + 5) == made
    keys.private(first.key_id, NOW + 14)
    with pytest.raises(OutdatedRelayKeyError):
        keys.private(first.key_id, NOW + 15)


def test_a_key_with_a_lead_is_pending_until_its_time(keys: RelayKeys) -> None:
    first = announced(keys, NOW)
    made = keys.rotate(NOW, lead=100, overlap=0).announced
    assert [key.state(NOW) for key in keys.held()] == [ACTIVE, PENDING]
    assert announced(keys, NOW + 99).public == first.public
    assert announced(keys, NOW + 100) == made
    assert len(keys.held()) == 2


def test_the_private_half_of_an_ended_key_is_erased(keys: RelayKeys, tmp_path: Path) -> None:
    first = announced(keys, NOW)
    keys.rotate(NOW + 1, overlap=0)
    keys.rotate(NOW + 2, overlap=0)
    records = json.loads((tmp_path / "data" / "relay-keys.json").read_text())
    assert records[0]["private"] is None
    assert records[0]["public"] == first.public.hex()
    assert keys.held()[0].state(NOW + 3) == EXPIRED
    assert keys.held()[0].private is None


@pytest.mark.parametrize("how", ["announcement", "start"])
def test_an_ended_key_is_erased_without_a_second_rotation(keys: RelayKeys, tmp_path: Path, how: str) -> None:
    path = tmp_path / "data" / "relay-keys.json"
    announced(keys, NOW)
    keys.rotate(NOW + 1, overlap=100)
    announced(keys, NOW + 100)
    assert all(record["private"] for record in json.loads(path.read_text()))  # still opened
    if how == "announcement":
        announced(keys, NOW + 101)
    else:
        RelayKeys(path, IDENTITY, TASK.task_id).erase_expired(NOW + 101)
    assert [bool(record["private"]) for record in json.loads(path.read_text())] == [False, True]


@pytest.mark.parametrize("days", [1, 7, 30, 400])
def test_a_key_is_used_for_two_thirds_of_its_own_life(keys: RelayKeys, days: int) -> None:
    announced(keys, NOW)
    made = keys.rotate(NOW + 1, life=days * 86_400).announced
    third = days * 86_400 / 3
    assert announced(keys, NOW + 2) == made
    assert announced(keys, NOW + 2 * third) == made
    assert announced(keys, NOW + 2 * third + 2) != made


def test_of_keys_made_in_the_same_second_the_last_is_announced(keys: RelayKeys) -> None:
    announced(keys, NOW)
    made = [keys.rotate(NOW).announced for _ in range(2)]
    assert announced(keys, NOW) == made[1]


def test_the_name_of_the_file_is_on_the_disk_before_a_key_is_announced(
    keys: RelayKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("secemb_party.storage.files.sync_folder", synced.append)
    announced(keys, NOW)
    assert synced == [tmp_path / "data"]


def test_the_file_is_its_owners_alone_and_nothing_secret_is_shown(keys: RelayKeys, tmp_path: Path) -> None:
    announced(keys, NOW)
    path = tmp_path / "data" / "relay-keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    secret = json.loads(path.read_text())[0]["private"]
    assert secret not in repr(keys)
    assert secret not in repr(keys.held())


def test_an_unknown_key_is_refused_without_repeating_it(keys: RelayKeys) -> None:
    announced(keys, NOW)
    with pytest.raises(OutdatedRelayKeyError) as caught:
        keys.private(bytes(8), NOW)
    assert "00" not in str(caught.value)


def test_a_damaged_file_says_what_to_do(keys: RelayKeys, tmp_path: Path) -> None:
    announced(keys, NOW)
    (tmp_path / "data" / "relay-keys.json").write_text("{")
    with pytest.raises(SettingsError, match="move it away"):
        keys.held()
