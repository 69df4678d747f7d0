"""The files of a home: bytes that are what they say, or are refused."""

from pathlib import Path

import pytest
from tests.unit.test_sdk_home import KEY, KEYS, open_vault

from secemb_sdk.errors import DamagedError, HomeKeyError, NewerHomeError
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.records import Record


def test_two_writes_of_the_same_record_do_not_look_alike() -> None:
    cipher = FileCipher(KEY)
    assert cipher.encode("ratings", b"data") != cipher.encode("ratings", b"data")


@pytest.mark.parametrize("length", [0, 15, 24, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(HomeKeyError, match="16 or 32"):
        FileCipher(bytes(length))


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"secemb-home", b"secemb-home 1\n", b"secemb-home 1 ratings plain\nx", b"\xff" * 300]
)
def test_a_file_that_is_no_record_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedError, match="restore the home"):
        FileCipher().decode("ratings", data)


@KEYS
def test_every_shorter_file_is_refused(key: bytes | None) -> None:
    cipher = FileCipher(key)
    data = cipher.encode("ratings", Record({"a": 1}, {"b": b"c"}).encode())
    for length in range(len(data)):
        with pytest.raises((DamagedError, HomeKeyError)):
            FileCipher(key).decode("ratings", data[:length])


@KEYS
def test_a_record_cannot_pass_for_another(key: bytes | None) -> None:
    data = FileCipher(key).encode("private", b"data")
    with pytest.raises(DamagedError):
        FileCipher(key).decode("session", data)


def test_a_sealed_record_cannot_be_renamed() -> None:
    data = FileCipher(KEY).encode("private", b"data").replace(b"private", b"session")
    with pytest.raises(DamagedError):
        FileCipher(KEY).decode("session", data)


@KEYS
def test_a_newer_home_asks_for_a_newer_app(key: bytes | None) -> None:
    data = FileCipher(key).encode("ratings", b"data").replace(b"secemb-home 1", b"secemb-home 2", 1)
    with pytest.raises(NewerHomeError, match="update the app"):
        FileCipher(key).decode("ratings", data)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", b"\5\0\0\0{}", b"\2\0\0\0{}", b"\xff\xff\xff\x7f{}", b"\2\0\0\0[]extra"]
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedError):
        Record.decode(data)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (KEY, bytes(32), "wrong key"),
        (KEY, KEY[:16], "wrong key"),
        (KEY, None, "is encrypted"),
        (None, KEY, "is not encrypted"),
    ],
)
def test_another_key_is_refused_with_its_own_error(
    tmp_path: Path, first: bytes | None, second: bytes | None, words: str
) -> None:
    open_vault(tmp_path, first).close()
    with pytest.raises(HomeKeyError, match=words):
        open_vault(tmp_path, second)
    open_vault(tmp_path, first).close()  # and the home is as it was


@KEYS
@pytest.mark.parametrize("where", [0, 13, 20, 30, -1], ids=["magic", "name", "how", "check", "body"])
def test_a_damaged_file_is_named(tmp_path: Path, key: bytes | None, where: int) -> None:
    vault = open_vault(tmp_path, key)
    vault.log([(1, 5.0)])
    vault.close()
    data = bytearray((tmp_path / "ratings").read_bytes())
    data[where] ^= 1
    (tmp_path / "ratings").write_bytes(data)
    with pytest.raises((DamagedError, HomeKeyError)) as raised:
        open_vault(tmp_path, key).ratings()
    if isinstance(raised.value, DamagedError):
        assert "ratings" in str(raised.value)
