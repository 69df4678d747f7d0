"""The canonical form of specifications: every other text that says the same is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.specifications import ROUND, TASK, decode_round, document, written

from secemb_shared.errors import EncodingError, SpecError
from secemb_shared.messages import TaskSpec, canonical

EITHER = pytest.mark.parametrize(
    ("decode", "good"), [(TaskSpec.decode, TASK.encode()), (decode_round, ROUND.encode())], ids=["task", "round"]
)


Decode = Callable[[bytes], object]


@EITHER
@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: good.replace(b",", b", ", 1),
        lambda good: good.replace(b":", b": ", 1),
        lambda good: b" " + good,
        lambda good: good + b"\n",
        lambda good: good + b"\x00",
        lambda good: good[:-1],
        lambda good: good[1:],
        lambda good: good + good,
        lambda good: b"\xef\xbb\xbf" + good,
        lambda good: good.decode().encode("utf-16"),
        lambda good: good.replace(b'"secemb/2"', b'"secemb\\/2"'),
        lambda good: good.replace(b'"secemb/2"', b'"secemb\\u002f2"'),
        lambda good: good.replace(b"secemb", b"s\xc3\xa9cemb"),
        lambda good: good.replace(b'"protocol"', b'"\\u0070rotocol"'),
        lambda good: good[:-1] + b',"tables":3}' if b"bins" in good else good[:-1] + b',"task":"x"}',
        lambda good: b'{"zzz":1,' + good[1:],
        lambda good: good.replace(b"{", b'{"a":1,"a":1,'),
        lambda good: good.replace(b"3", b"3.0"),
        lambda good: good.replace(b"3", b"03"),
        lambda good: good.replace(b"3", b"3e0"),
        lambda good: good.replace(b"3", b"+3"),
        lambda good: good.replace(b"3", b"-0"),
        lambda good: good.replace(b":3", b":true"),
        lambda good: good.replace(b":3", b":null"),
        lambda good: good.replace(b":3", b":NaN"),
        lambda good: good.replace(b":3", b":Infinity"),
        lambda good: good.replace(b":3", b":[3]"),
        lambda good: good.replace(b":3", b":9007199254740992"),
        lambda good: good.replace(b":3", b":-9007199254740992"),
        lambda good: good.replace(b":3", b":" + b"9" * 5000),
        lambda good: good.replace(b":3", b":1e999"),
        lambda good: b"",
        lambda good: b"null",
        lambda good: b"7",
        lambda good: b"[]",
        lambda good: b'"secemb/1"',
        lambda good: b"[" * 100_000,
        lambda good: b'{"a":' * 100_000,
        lambda good: b'{"a":' * 900 + b"1" + b"}" * 900,
        lambda good: b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)
def test_what_is_not_canonical_is_refused(decode: Decode, good: bytes, spoil: Callable[[bytes], bytes]) -> None:
    decode(good)
    assert spoil(good) != good
    with pytest.raises((EncodingError, SpecError)):
        decode(spoil(good))


@EITHER
def test_unknown_and_missing_fields_are_refused(decode: Decode, good: bytes) -> None:
    content = document(good)
    for name in content:
        with pytest.raises(SpecError):
            decode(written({key: value for key, value in content.items() if key != name}))
    for name in ("aaa", "zzz", "Name", "items ", ""):
        with pytest.raises(SpecError):
            decode(written(content | {name: 1}))


@EITHER
def test_fields_of_another_type_are_refused(decode: Decode, good: bytes) -> None:
    content = document(good)
    for name, value in content.items():
        for wrong in ("3" if isinstance(value, int) else 3, {} if value != {} else "", {"a": 1}):
            with pytest.raises(SpecError):
                decode(written(content | {name: wrong}))
        for odd in (None, True, False, [], [1], 1.5):
            with pytest.raises((EncodingError, SpecError)):
                decode(written(content | {name: odd}))


@EITHER
def test_another_protocol_is_refused(decode: Decode, good: bytes) -> None:
    for name in ("secemb/1", "secemb/2 ", "SECEMB/2", ""):
        with pytest.raises(SpecError):
            decode(written(document(good) | {"protocol": name}))


@pytest.mark.parametrize("value", [1.5, None, [1], {"a": (1,)}, {"a": {"b": b"x"}}, {"é": 1}, {"a": "é"}, {"a": True}])
def test_the_canonical_form_has_numbers_text_and_groups_only(value: Any) -> None:
    with pytest.raises(SpecError):
        canonical.encode(value if isinstance(value, dict) else {"value": value})


def test_nested_groups_come_back() -> None:
    content: dict[str, Any] = {"a": {"c": 1, "b": "x"}, "A": -5, "": {}}
    assert canonical.encode(content) == b'{"":{},"A":-5,"a":{"b":"x","c":1}}'
    assert canonical.decode(canonical.encode(content)) == content
