"""Specifications with one thing wrong: not canonical, not complete, or impossible."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from secemb_lab.vectors.document import Json
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.spec import SUM_SIZES

_LINE: dict[str, Any] = {"clip": 65536, "epsilon": "8", "multiplier": "1"}
_PRIVACY: dict[str, Any] = {
    "delta": "0.000001",
    "dense_clip": 0,
    "evaluate": {},
    "sampling_rate": "",
    "survey": _LINE,
    "train": _LINE,
    "unit": "user",
}
_CHANGED_PRIVACY: dict[str, dict[str, Any]] = {
    "unit unknown": {"unit": "device"},
    "delta 0": {"delta": "0"},
    "delta 1": {"delta": "1"},
    "rate 0": {"sampling_rate": "0"},
    "rate above 1": {"sampling_rate": "1.1"},
    "without a line for training": {"train": {}},
    "dense clip negative": {"dense_clip": -1},
    "with an unknown member": {"alpha": 1},
}
_CHANGED_LINES: dict[str, dict[str, Any]] = {
    "of clip 0": {"clip": 0},
    "of noise finer than 256 steps": {"clip": 255},
    "of multiplier 0": {"multiplier": "0"},
    "of epsilon 0": {"epsilon": "0"},
    "of epsilon above a thousand": {"epsilon": "1001"},
    "of epsilon as a number": {"epsilon": 8},
    "with an unknown member": {"delta": "0.1"},
    "whose tail can reach half the ring": {"multiplier": "1820"},
}


def _line(clip: int) -> dict[str, Any]:
    """Return a budget line whose σ is its clip, or √2 times that where two vectors change together."""
    return {**_LINE, "clip": clip, "multiplier": "1"}


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


_CHANGED_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("name empty", {"name": ""}),
    ("name of 101 characters", {"name": "n" * 101}),
    ("name is a number", {"name": 7}),
    ("no items", {"items": 0, "capacity": 0}),
    ("items negative", {"items": -5}),
    ("items as text", {"items": "5"}),
    ("items as a group", {"items": {"count": 5}}),
    ("too many items", {"items": 2**31}),
    ("row width 0", {"row_width": 0}),
    ("row width 65537", {"row_width": 2**16 + 1}),
    ("dense size negative", {"dense_size": -1}),
    ("dense size above 2^31", {"dense_size": 2**31 + 1}),
    ("capacity 0", {"capacity": 0}),
    ("capacity above the items", {"capacity": 6}),
    ("no table", {"tables": 0}),
    ("256 tables", {"tables": 256}),
    ("no bin", {"bins": 0}),
    ("more bins than items", {"bins": 6}),
    ("ring of 16 bits", {"ring_bits": 16}),
    ("fraction bits negative", {"fraction_bits": -1}),
    ("fraction bits leave no room", {"fraction_bits": 31}),
    ("bound 0", {"bound": 0}),
    ("cohort below the smallest", {"cohort": 1, "min_cohort": 1}),
    ("smallest cohort 1", {"min_cohort": 1}),
    ("smallest cohort above the cohort", {"min_cohort": 1001}),
    ("the cohort can reach half the ring", {"bound": 2**21, "cohort": 2**10}),
    ("no round", {"rounds": 0}),
    ("rounds above 2^32", {"rounds": 2**32 + 1}),
    ("rounds as text", {"rounds": "100"}),
    ("seed negative", {"seed": -1}),
    ("nobody can join", {"join_seconds": 0}),
    ("joining ends after uploading", {"join_seconds": 61, "upload_seconds": 60}),
    ("uploads of more than 30 days", {"upload_seconds": 30 * 86_400 + 1}),
    ("optimiser unknown", {"optimiser": "adagrad"}),
    ("optimiser in capitals", {"optimiser": "Adam"}),
    ("loss unknown", {"loss": "hinge"}),
    ("schedule unknown", {"schedule": "linear"}),
    ("centre with a plus sign", {"centre": "+1"}),
    ("centre of minus zero", {"centre": "-0"}),
    ("centre empty", {"centre": ""}),
    ("centre with two signs", {"centre": "--1"}),
    ("spread 0", {"spread": "0"}),
    ("a scale without length", {"lowest": "5", "highest": "5"}),
    ("a scale that ends below its beginning", {"lowest": "-1", "highest": "-10"}),
    ("a lowest rating that is a word", {"lowest": "one", "highest": "5"}),
    ("catalogue of 63 digits", {"catalogue": "0" * 63}),
    ("catalogue in capitals", {"catalogue": "F" * 64}),
    ("relay key cut", {"relay_key": "ab" * 31}),
    ("relay key too long", {"relay_key": "ab" * 33}),
    ("relay key in capitals", {"relay_key": "AB" * 32}),
    ("relay key as a number", {"relay_key": 0}),
    ("identity of server 0 cut", {"identity0": "ab" * 31}),
    ("identity of server 0 in capitals", {"identity0": "AB" * 32}),
    ("one identity for both servers", {"identity0": "ab" * 32, "relay_key": "ab" * 32}),
    ("predecessor too long", {"predecessor": "ab" * 33}),
    ("predecessor as a number", {"predecessor": 0}),
    ("privacy as text", {"privacy": ""}),
    ("privacy as a number", {"privacy": 0}),
    *((f"privacy {name}", {"privacy": {**_PRIVACY, **wrong}}) for name, wrong in _CHANGED_PRIVACY.items()),
    *((f"privacy without {name}", {"privacy": _without(_PRIVACY, name)}) for name in _PRIVACY),
    *(
        (f"privacy with a line {name}", {"privacy": {**_PRIVACY, "train": {**_LINE, **wrong}}})
        for name, wrong in _CHANGED_LINES.items()
    ),
    (
        "privacy with too little noise, in evaluations by record",
        {"privacy": {**_PRIVACY, "unit": "record", "evaluate": _line(181)}},
    ),
    ("privacy with too little noise, in surveys by user", {"privacy": {**_PRIVACY, "survey": _line(255)}}),
    ("privacy with too little noise, cut apart", {"privacy": {**_PRIVACY, "train": _line(181), "dense_clip": 181}}),
    ("privacy with a line without epsilon", {"privacy": {**_PRIVACY, "survey": _without(_LINE, "epsilon")}}),
    ("another protocol", {"protocol": "secemb/1"}),
    ("an unknown field", {"colour": 1}),
    ("an unknown field that sorts last", {"zero": 0}),
]
_RATES = ("row_rate", "bias_rate", "dense_rate", "row_decay", "bias_decay", "initial_scale", "spread")
_NOT_DECIMAL = {
    "empty": "",
    "with a zero at the end": "0.0250",
    "with nothing but zeros behind the point": "1.0",
    "without digits before the point": ".5",
    "without digits behind the point": "5.",
    "with an exponent": "1e-3",
    "negative": "-1",
    "with a plus sign": "+1",
    "with a leading zero": "00.1",
    "with a space": " 1",
    "with a comma": "0,5",
    "not a number": "nan",
    "of ten digits": "1000000000",
    "of thirteen digits behind the point": "0.0000000000001",
}
_BORDERS: list[dict[str, Any]] = [
    {},
    {"name": "n" * 100},
    {"bound": 2**21 - 1, "cohort": 2**10},
    {"fraction_bits": 30},
    {"rounds": 1, "seed": 2**53 - 1, "join_seconds": 1, "upload_seconds": 1, "optimiser": "sgd"},
    {"relay_key": ""},
    {"relay_key": "0" * 64},
    {"catalogue": "f" * 64},
    {"identity0": "0" * 64, "predecessor": "1" * 64},
    {"identity0": "a" * 64, "relay_key": "b" * 64},
    {"loss": "bpr", "optimiser": "momentum", "schedule": "constant"},
    {"loss": "softmax", "bias_rate": "0", "row_decay": "0.5", "bias_decay": "1", "centre": "3.5"},
    {"centre": "-3.5", "spread": "0.000000000001", "lowest": "-10", "highest": "-9.5"},
    {"lowest": "0"},
    {"highest": "-5.5"},
    {"privacy": _PRIVACY},
    {"privacy": {**_PRIVACY, "survey": {}, "sampling_rate": "1", "delta": "0.999999999999", "unit": "record"}},
    {"privacy": {**_PRIVACY, "train": {**_LINE, "multiplier": "900"}}},
    {"privacy": {**_PRIVACY, "unit": "record", "evaluate": _line(182)}},
    {"privacy": {**_PRIVACY, "unit": "record", "survey": _line(182)}},
    {"privacy": {**_PRIVACY, "train": _line(182), "dense_clip": 182}},
    {"rounds": 2**32, "join_seconds": 30 * 86_400, "upload_seconds": 30 * 86_400},
    {"row_rate": "0", "dense_rate": "999999999", "initial_scale": "0.000000000001"},
]


def accepted(round_: RoundSpec) -> Iterator[Json]:
    """Yield the specifications that the refused ones differ from, and limits that are still allowed."""
    fields = json.loads(round_.task.encode())
    for changes in _BORDERS:
        yield {"decoder": "task", "text": _text({**fields, **changes})}
    for kind in SUM_SIZES:
        yield {"decoder": "round", "text": _text({**json.loads(round_.encode()), "kind": kind})}


def refused_tasks(task: TaskSpec) -> Iterator[Json]:
    """Yield invalid task specifications."""
    fields = json.loads(task.encode())
    for name, changes in _CHANGED_FIELDS:
        yield _case(name, "task", _text({**fields, **changes}), "SpecError")
    for index, (name, wrong) in enumerate(_NOT_DECIMAL.items()):
        rate = _RATES[index % len(_RATES)]
        yield _case(f"{rate} {name}", "task", _text({**fields, rate: wrong}), "SpecError")
    for rate in _RATES:
        yield _case(f"{rate} as a number", "task", _text({**fields, rate: 1}), "SpecError")
    for missing in fields:
        rest = {name: value for name, value in fields.items() if name != missing}
        yield _case(f"without {missing}", "task", _text(rest), "SpecError")
    yield from _not_canonical("task", _text(fields), '"bins":1', '"name":"negative"')


def refused_rounds(round_: RoundSpec) -> Iterator[Json]:
    """Yield round specifications that are not one of this task."""
    fields = json.loads(round_.encode())
    digest = fields["model_digest"]
    for name, changes in {
        "of another task": {"task": bytes(32).hex()},
        "digest in capitals": {"model_digest": "A" + digest[1:]},
        "digest cut": {"model_digest": digest[:-2]},
        "digest too long": {"model_digest": digest + "00"},
        "digest with a space": {"model_digest": digest[:-1] + " "},
        "round negative": {"round": -1},
        "round as text": {"round": "8"},
        "version negative": {"model_version": -1},
        "kind unknown": {"kind": "test"},
        "kind in capitals": {"kind": "Train"},
        "kind empty": {"kind": ""},
        "kind as a number": {"kind": 1},
        "another protocol": {"protocol": "secemb/0"},
        "an unknown field": {"cohort": 5},
    }.items():
        yield _case(name, "round", _text({**fields, **changes}), "SpecError")
    for missing in fields:
        rest = {name: value for name, value in fields.items() if name != missing}
        yield _case(f"without {missing}", "round", _text(rest), "SpecError")
    yield _case("a task instead", "round", round_.task.encode().decode("ascii"), "SpecError")
    yield from _not_canonical("round", _text(fields), '"round":8', '"protocol":"secemb/2"')


def _not_canonical(decoder: str, good: str, number: str, text: str) -> Iterator[Json]:
    """Yield other ways to write the same content; `number` and `text` are two fields of it."""
    field, digits = number.split(":")
    faults = {
        "empty": "",
        "a list": "[]",
        "a number": "1",
        "null": "null",
        "not JSON": good[:-1],
        "a line feed at the end": good + "\n",
        "a space at the start": " " + good,
        "a space behind a colon": good.replace(":", ": ", 1),
        "a space behind a comma": good.replace(",", ", ", 1),
        "a field twice": good.replace(number, f"{number},{number}"),
        "fields in another order": "{" + ",".join(reversed(good[1:-1].split(","))) + "}",
        "a number with a fraction": good.replace(number, f"{field}:{digits}.0"),
        "a number with an exponent": good.replace(number, f"{field}:{digits}e0"),
        "a number with a leading zero": good.replace(number, f"{field}:0{digits}"),
        "a number with a plus sign": good.replace(number, f"{field}:+{digits}"),
        "minus zero": good.replace(number, f"{field}:-0"),
        "a number of 2^53": good.replace(number, f"{field}:{2**53}"),
        "not a number": good.replace(number, f"{field}:NaN"),
        "true for a number": good.replace(number, f"{field}:true"),
        "null for a number": good.replace(number, f"{field}:null"),
        "a list for a number": good.replace(number, f"{field}:[{digits}]"),
        "an escape": good.replace(text, text.replace("e", "\\u0065", 1)),
        "a quote in text": good.replace(text, text[:-1] + '\\""'),
        "a backslash in text": good.replace(text, text[:-1] + '\\\\"'),
        "a control character in text": good.replace(text, text[:-1] + '\x7f"'),
    }
    for name, wrong in faults.items():
        yield _case(name, decoder, wrong, "EncodingError")
    yield _bytes_case("not ASCII", decoder, good.replace(text, text[:-1] + 'é"').encode(), "EncodingError")
    yield _bytes_case("a byte order mark", decoder, b"\xef\xbb\xbf" + good.encode("ascii"), "EncodingError")
    yield _bytes_case("UTF-16", decoder, good.encode("utf-16-le"), "EncodingError")


def _text(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _case(name: str, decoder: str, text: str, error: str) -> Json:
    return {"name": name, "decoder": decoder, "text": text, "error": error}


def _bytes_case(name: str, decoder: str, data: bytes, error: str) -> Json:
    return {"name": name, "decoder": decoder, "data": data.hex(), "error": error}
