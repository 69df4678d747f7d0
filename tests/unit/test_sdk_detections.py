"""What a device has noticed of its servers, as its home keeps it."""

from pathlib import Path

import pytest
from tests.unit.test_sdk_home import open_vault

from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.export import export_home


@pytest.mark.parametrize("key", [None, bytes(16)])
def test_detections_are_counted_by_kind_and_outlive_the_process(tmp_path: Path, key: bytes | None) -> None:
    vault = open_vault(tmp_path, key=key)
    for kind, day in ((Misconduct.ROWS, 1), (Misconduct.RECEIPT, 2), (Misconduct.ROWS, 3)):
        vault.note(kind, f"2026-01-0{day}T00:00:00+00:00")
    vault.close()
    expected = [
        {"kind": "receipt", "count": 1, "last": "2026-01-02T00:00:00+00:00"},
        {"kind": "rows", "count": 2, "last": "2026-01-03T00:00:00+00:00"},
    ]
    assert export_home(open_vault(tmp_path, key=key))["detections"] == expected


def test_a_count_of_detections_that_is_damaged_begins_anew(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    vault.note(Misconduct.ROWS, "then")
    (tmp_path / "detections").write_bytes(b"what a broken disk has left")
    assert vault.detections() == {}
    vault.note(Misconduct.DENSE, "now")
    assert {kind: one.count for kind, one in vault.detections().items()} == {"dense": 1}
