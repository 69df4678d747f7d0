"""Vectors of the primitives: labels, hash, stream, permutation, ring and row tag."""

import hashlib

import numpy as np

from secemb_lab.vectors.document import Json, Source, each, plain
from secemb_shared import prg, secure_sum
from secemb_shared.dpf._portable import Portable
from secemb_shared.errors import SecEmbError
from secemb_shared.labels import NO_SESSION, Label, Purpose
from secemb_shared.layout import Permutation
from secemb_shared.ring import Ring
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

_LARGEST_NUMBER = 2**53 - 1
_SEEDED = {Purpose.ROOTS: 16, Purpose.DENSE_SHARE: 16, Purpose.SUM_SHARE: 16, Purpose.BINDING: 34, Purpose.LAYOUT: 1}
_HELD = {Purpose.ANSWER_MASK: 32, Purpose.UPLOAD_MAC: 64, Purpose.RELAY_RECEIPT: 64, Purpose.RELAY_DENSE: 64}
_NORM = {
    Purpose.NORM_COMMIT: 29,
    Purpose.NORM_CHALLENGE: 128,
    Purpose.NORM_JOINT: 64,
    Purpose.NORM_SHARE: 16,
    Purpose.NORM_POINT: 32,
}


def labels() -> Json:
    """Derivations for every purpose, in sessions and outside of them."""
    source = Source("labels")
    places = [source.label(0), source.label(7), source.label(_LARGEST_NUMBER), Label(source(32), 258, NO_SESSION)]
    direct = [purpose for purpose in Purpose if purpose not in _HELD | _NORM]
    return {
        "cases": [
            _derivation(place, purpose, source)
            for some in (direct, _HELD, _NORM)
            for place in places
            for purpose in some
        ]
    }


def _derivation(place: Label, purpose: Purpose, source: Source) -> Json:
    context = source((_SEEDED | _HELD | _NORM).get(purpose, 0))
    return {
        "task_id": place.task_id.hex(),
        "number": place.number,
        "session_id": place.session_id.hex(),
        "purpose": purpose.value,
        "context": context.hex(),
        "derived": place.derive(purpose, context).hex(),
        "key": place.key(purpose, context).hex(),
    }


def prg_() -> Json:
    """The orthomorphism, the hash, the stream, and the share that a stream hides."""
    source = Source("prg")
    ones = [np.frombuffer((1 << bit).to_bytes(16, "little"), dtype=np.uint8) for bit in (0, 63, 64, 127)]
    blocks = np.concatenate([np.zeros((1, 16), np.uint8), np.full((1, 16), 255, np.uint8), ones, source.blocks(6)])
    keys = [source(16) for _ in range(2)]
    return {
        "sigma": [{"block": plain(block), "result": plain(prg.sigma(block[None]))} for block in blocks],
        "hash": [
            {"key": key.hex(), "blocks": each(blocks), "results": each(prg.hash_blocks(key, blocks))} for key in keys
        ],
        "stream": [
            {"key": keys[0].hex(), "first": first, "blocks": each(prg.stream(keys[0], count, first))}
            for first, count in ((0, 5), (254, 3), (2**32 - 1, 2))
        ],
        "hide": [_hidden(source, bits, count) for bits in (32, 64) for count in (1, 4, 7)],
    }


def _hidden(source: Source, bits: int, count: int) -> Json:
    key, dtype = source(16), Ring(bits).dtype
    values = np.frombuffer(source(count * bits // 8), dtype=dtype.newbyteorder("<")).astype(dtype)
    return {
        "ring_bits": bits,
        "key": key.hex(),
        "values": plain(values),
        "share": plain(secure_sum.hide(key, values, Portable())),
    }


def permutation() -> Json:
    """Where each item goes; the inverse undoes it."""
    source = Source("permutation")
    small = [_whole(items, source(16)) for items in (1, 2, 3, 4, 5, 7, 12, 16, 17, 23, 100)]
    return {"whole": small, "sampled": [_sampled(items, source) for items in (1682, 93386)]}


def _whole(items: int, key: bytes) -> Json:
    forward = Permutation(items, key).forward(np.arange(items, dtype=np.int64))
    return {"items": items, "key": key.hex(), "forward": forward.tolist()}


def _sampled(items: int, source: Source) -> Json:
    key, some = source(16), np.sort(source.below(items, 24))
    permute = Permutation(items, key)
    forward = permute.forward(np.arange(items, dtype=np.int64))
    return {
        "items": items,
        "key": key.hex(),
        "values": some.tolist(),
        "forward": permute.forward(some).tolist(),
        "inverse": permute.inverse(some).tolist(),
        "forward_u32_sha256": hashlib.sha256(forward.astype("<u4").tobytes()).hexdigest(),
    }


def ring() -> Json:
    """Encoding with ties to even, decoding, refusals, and the overflow budget."""
    ties = [unit * 2.0**-16 for unit in (0.0, 0.49, 0.5, 0.51, 1.0, 1.5, 2.5, 3.5, 1e-9)]
    values = [*ties, *(-tie for tie in ties), 1.0, -1.0, 1 / 3, -1 / 3, 12.345678, -99.999]
    edges = {32: (32768.0 - 2.0**-16, -32768.0), 64: (2.0**47 - 2.0**-6, -(2.0**47))}
    return {
        "encode": [
            *(_encoded(Ring(32, 16), value, None) for value in (*values, *edges[32])),
            *(_encoded(Ring(64, 16), value, None) for value in (*values[:6], *edges[64])),
            *(_encoded(Ring(*shape), value, None) for shape in ((32, 0), (32, 30), (64, 40)) for value in (0.7, -1.5)),
            *(_encoded(SUM_RING, value, SUM_BOUND) for value in (2.0**24, 1e6 + 1 / 3)),
            *(_encoded(Ring(32, 16), value, 100) for value in (100 / 65536, -100.5 / 65536, -100 / 65536)),
        ],
        "refused": [
            *(_refused(Ring(bits, 16), value, None) for bits in (32, 64) for value in ("nan", "inf", "-inf", "1e300")),
            *(_refused(Ring(32, 16), value, None) for value in ("32768", "-32768.1")),
            *(_refused(Ring(64, 16), value, None) for value in ("140737488355328", "-140737488355328.1")),
            *(_refused(SUM_RING, value, SUM_BOUND) for value in ("16777216.00001", "-16777217")),
            *(_refused(Ring(32, 16), value, 100) for value in ("0.00154", "-0.00154", "nan")),
        ],
        "decode": [
            *(_decoded(Ring(32, 16), value) for value in (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 98304)),
            *(_decoded(Ring(64, 16), value) for value in (0, 2**53 + 1, 2**53 + 3, 2**63 - 1, 2**63, 2**64 - 1)),
        ],
        "budget": [
            _budget(bits, cohort, bound, tail)
            for bits, cohort, bound, tail in (
                (32, 1000, 2147483, 0),
                (32, 1000, 2147484, 0),
                (32, 2, 2**30 - 1, 1),
                (32, 2, 2**30 - 1, 2),
                (64, 2**10, 2**53 - 1, 0),
                (64, 2**11, 2**53 - 1, 0),
                (64, 2**23 - 1, SUM_BOUND, 0),
                (64, 2**23, SUM_BOUND, 0),
                (32, 0, 1, 0),
                (32, 1, 0, 0),
                (32, 1, 1, -1),
            )
        ],
    }


def _encoded(ring_: Ring, value: float, bound: int | None) -> Json:
    element = ring_.encode(np.array([value]), bound=bound)
    return {
        "ring_bits": ring_.bits,
        "fraction_bits": ring_.fraction_bits,
        "value": value.hex(),
        "decimal": repr(value),
        "bound": bound,
        "element": plain(element),
        "decoded": float(ring_.decode(element)[0]).hex(),
    }


def _refused(ring_: Ring, value: str, bound: int | None) -> Json:
    shape = {"ring_bits": ring_.bits, "fraction_bits": ring_.fraction_bits, "bound": bound}
    return {**shape, "value": float(value).hex(), "decimal": value, "error": _error(ring_, float(value), bound)}


def _error(ring_: Ring, value: float, bound: int | None) -> str:
    try:
        ring_.encode(np.array([value]), bound=bound)
    except SecEmbError as error:
        return type(error).__name__
    raise AssertionError("a value that must be refused was encoded")


def _decoded(ring_: Ring, element: int) -> Json:
    elements = np.array([element], dtype=ring_.dtype)
    value = float(ring_.decode(elements)[0])
    shape = {"ring_bits": ring_.bits, "fraction_bits": ring_.fraction_bits}
    return {**shape, "element": plain(elements), "value": value.hex(), "decimal": repr(value)}


def _budget(bits: int, cohort: int, bound: int, tail: int) -> Json:
    error = None
    try:
        Ring(bits).check_budget(cohort=cohort, bound=bound, noise_tail=tail)
    except SecEmbError as refusal:
        error = type(refusal).__name__
    return {"ring_bits": bits, "cohort": cohort, "bound": bound, "noise_tail": tail, "error": error}


def tags() -> Json:
    """The 32-bit tag of a row: of its bytes, its item and the model version."""
    source = Source("tags")
    shapes = [(width, item) for width in (1, 3, 4, 5, 65) for item in (0, 1, 2**31 - 2)]
    return {"cases": [_tag(source, width, item, version) for version, (width, item) in enumerate(shapes)]}


def _tag(source: Source, width: int, item: int, version: int) -> Json:
    place = Label(source(32), version)
    row = np.frombuffer(source(4 * width), dtype="<u4").astype(np.uint32).reshape(1, width)
    tag = Portable().row_tags(place.key(Purpose.ROW_TAG), row, np.array([item], dtype=np.int64))
    return {
        "task_id": place.task_id.hex(),
        "model_version": version,
        "key": place.key(Purpose.ROW_TAG).hex(),
        "item": item,
        "row": plain(row),
        "tag": plain(tag),
    }
