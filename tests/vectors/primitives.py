"""Labels, hash, stream, permutation, ring and row tag against their vectors."""

import hashlib

import numpy as np
from tests.vectors.values import Case, blocks, elements, error_of, numbers, raw, words32

from secemb_lab.vectors.document import each, hex_floats, plain
from secemb_shared import prg, secure_sum
from secemb_shared.dpf import Backend
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout import Permutation
from secemb_shared.ring import Ring
from secemb_shared.row_words import HALF, as_words, from_words, published, to_half


def check_label(case: Case, _backend: Backend) -> None:
    label = Label(raw(case["task_id"]), case["number"], raw(case["session_id"]))
    context = raw(case["context"])
    assert label.derive(Purpose(case["purpose"]), context).hex() == case["derived"]
    assert label.key(Purpose(case["purpose"]), context).hex() == case["key"]


def check_sigma(case: Case, _backend: Backend) -> None:
    assert plain(prg.sigma(blocks([case["block"]]))) == case["result"]


def check_hash(case: Case, backend: Backend) -> None:
    assert each(backend.hash_blocks(raw(case["key"]), blocks(case["blocks"]))) == case["results"]


def check_stream(case: Case, backend: Backend) -> None:
    key, first, expected = raw(case["key"]), case["first"], case["blocks"]
    assert each(prg.stream(key, len(expected), first)) == expected
    if first < 1000:  # a backend's stream begins at block 0
        values = np.zeros((first + len(expected), 4), dtype=np.uint32)
        backend.add_stream(key, values, negative=False)
        assert each(values[first:]) == expected


def check_hide(case: Case, backend: Backend) -> None:
    ring, key = Ring(case["ring_bits"]), raw(case["key"])
    values = elements(case["values"], ring)
    share = secure_sum.hide(key, values, backend)
    assert plain(share) == case["share"]
    secure_sum.add_seeded(key, share, backend)
    assert np.array_equal(share, values)


def check_permutation(case: Case, _backend: Backend) -> None:
    permutation = Permutation(case["items"], raw(case["key"]))
    everything = np.arange(case["items"], dtype=np.int64)
    assert permutation.forward(everything).tolist() == case["forward"]
    assert np.array_equal(permutation.inverse(numbers(case["forward"])), everything)


def check_sampled_permutation(case: Case, _backend: Backend) -> None:
    permutation = Permutation(case["items"], raw(case["key"]))
    assert permutation.forward(numbers(case["values"])).tolist() == case["forward"]
    assert permutation.inverse(numbers(case["values"])).tolist() == case["inverse"]
    forward = permutation.forward(np.arange(case["items"], dtype=np.int64)).astype("<u4")
    assert hashlib.sha256(forward.tobytes()).hexdigest() == case["forward_u32_sha256"]


def check_tag(case: Case, backend: Backend) -> None:
    key = Label(raw(case["task_id"]), case["model_version"]).key(Purpose.ROW_TAG)
    assert key.hex() == case["key"]
    row = words32(case["row"])[None]
    assert plain(backend.row_tags(key, row, numbers([case["item"]]))) == case["tag"]


def check_encode(case: Case, _backend: Backend) -> None:
    ring, value = Ring(case["ring_bits"], case["fraction_bits"]), float.fromhex(case["value"])
    assert float(case["decimal"]) == value
    element = ring.encode(np.array([value]), bound=case["bound"])
    assert plain(element) == case["element"]
    assert hex_floats(ring.decode(element)) == [case["decoded"]]


def check_refused_number(case: Case, _backend: Backend) -> None:
    ring, value = Ring(case["ring_bits"], case["fraction_bits"]), float.fromhex(case["value"])
    assert repr(float(case["decimal"])) == repr(value)
    assert error_of(lambda: ring.encode(np.array([value]), bound=case["bound"])) == case["error"]


def check_decode(case: Case, _backend: Backend) -> None:
    ring = Ring(case["ring_bits"], case["fraction_bits"])
    assert hex_floats(ring.decode(elements(case["element"], ring))) == [case["value"]]
    assert float(case["decimal"]).hex() == case["value"]


def check_budget(case: Case, _backend: Backend) -> None:
    sizes = {name: case[name] for name in ("cohort", "bound", "noise_tail")}
    assert error_of(lambda: Ring(case["ring_bits"]).check_budget(**sizes)) == case["error"]


def check_half(case: Case, _backend: Backend) -> None:
    given = np.array([[float.fromhex(case["value"])]], dtype=np.float32)
    assert hex_floats(given[0]) == [case["value"]]
    assert plain(to_half(given)) == case["half"]
    assert hex_floats(published(given, HALF)[0]) == [case["read"]]
    words = as_words(published(given, HALF), HALF)
    assert plain(words) == case["half"] + "0000"
    assert hex_floats(from_words(words, 1, HALF)[0]) == [case["read"]]


def check_packed(case: Case, _backend: Backend) -> None:
    ring = Ring(24, 12)
    element = ring.encode([float.fromhex(case["value"])])
    assert ring.pack(element).hex() == case["element"]
    assert np.array_equal(ring.unpack(raw(case["element"])), element)
    assert hex_floats(ring.decode(element)) == [case["decoded"]]
