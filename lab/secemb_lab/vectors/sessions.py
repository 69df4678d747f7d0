"""Vectors of complete rounds: every message of every session, what both parties sum, and what comes out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_lab.party_round import PartyRound
from secemb_lab.vectors.document import Json, Recorder, Replay, Source, each, hex_floats, plain
from secemb_lab.vectors.specifications import binned, direct
from secemb_party.evaluation import Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared import secure_sum
from secemb_shared.dpf import RingArray
from secemb_shared.dpf._portable import Portable
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, TaskSpec, encode_sum_share, public_keys_digest, public_update_digest
from secemb_shared.messages.spec import EVALUATE, SURVEY
from secemb_shared.randomness import Indices
from secemb_shared.ring import Ring
from secemb_shared.row_access import tag_rows
from secemb_shared.row_words import HALF, Rows, published, to_half
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

Reals = npt.NDArray[np.float64]


def session() -> Json:
    """Rounds in both layouts and both rings, with devices that have too many items, few, or none."""
    wide = binned(name="wide rows", items=9, capacity=6, tables=2, bins=4, row_width=65)
    single = direct(name="one item", items=1, capacity=1, row_width=1, dense_size=0)
    small = {
        "items": 4,
        "capacity": 2,
        "row_width": 2,
        "dense_size": 1,
        "norm_bound": 2**22,
        "fraction_bits": 16,
        "bound": 2**20,
    }
    proved = [direct(name=f"norm proof, {bits} bits", ring_bits=bits, **small) for bits in (32, 64)]
    rounds = [(binned(), [15, 4, 0]), (direct(), [2, 6]), (wide, [6, 3]), (single, [1, 0])]
    rounds += [(task, [2, 0]) for task in proved]
    return {"rounds": [_Round(task, Source(f"session {task.name}")).play(counts) for task, counts in rounds]}


def short() -> Json:
    """Rounds with half-precision rows and with the 24-bit ring, how numbers are rounded and elements sent."""
    small: Json = {"ring_bits": 24, "fraction_bits": 12, "bound": 2**16, "cohort": 100}
    rounds = [
        (binned(name="half-precision rows", row_bits=HALF), [9, 0]),
        (binned(name="24 bits", norm_bound=2**19, **small), [9, 0]),
        (direct(name="both", row_bits=HALF, row_width=4, **small), [4, 1]),
    ]
    return {
        "rounds": [_Round(task, Source(f"short {task.name}")).play(counts) for task, counts in rounds],
        "halves": [_halved(value) for value in _HALVED],
        "elements": [_packed(value) for value in (0.0, 2.0**-12, -(2.0**-12), 1 / 3, 2047.99, -2048.0, -1 / 3)],
        "refused": [{"text": text, "error": "SpecError"} for text in _refused_tasks()],
    }


# Ties to even, subnormal numbers and their edge, and what is beyond the largest number.
_HALVED = (
    *(0.0, -0.0, 1.0, -2.5, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, 65504.0, 65519.0, 65520.0),
    *(1 / 3, 2.0**-14, 2.0**-14 - 2.0**-26, 2.0**-24, 2.0**-25, 2.0**-25 + 2.0**-40, -3 * 2.0**-25, 1e-10),
    *(-65536.0, 1e30, -0.1),
)


def _refused_tasks() -> list[str]:
    """Return tasks with options that do not exist, that are written where they must be left out, or that do not fit."""
    usual, small = binned().encode().decode("ascii"), binned(ring_bits=24, fraction_bits=12, bound=2**16, cohort=100)
    rows = [usual.replace('"row_decay"', f'"row_bits":{bits},"row_decay"') for bits in ("32", "8", "64", "0", '"16"')]
    texts = [('"bound":65536', '"bound":83887'), ('"fraction_bits":12', '"fraction_bits":23')]
    texts.append(('"norm_bound":0', '"norm_bound":524289'))
    written = small.encode().decode("ascii")
    return rows + [written.replace(was, now) for was, now in texts]


def _halved(value: float) -> Json:
    given = np.array([[value]], dtype=np.float32)
    return {
        "value": float(given[0, 0]).hex(),
        "half": plain(to_half(given)),
        "read": float(published(given, HALF)[0, 0]).hex(),
    }


def _packed(value: float) -> Json:
    ring = Ring(24, 12)
    element = ring.encode(np.array([value]))
    return {"value": value.hex(), "element": ring.pack(element).hex(), "decoded": float(ring.decode(element)[0]).hex()}


@dataclass(slots=True)
class _Device:
    """One device's session, and what it sends."""

    inputs: Json
    session: DeviceSession
    updates: npt.NDArray[np.float64]
    items: Indices
    dense: npt.NDArray[np.float64]


class _Round:
    """A round with both parties, played from beginning to end."""

    def __init__(self, task: TaskSpec, source: Source) -> None:
        self.task, self.source = task, source
        self.round = RoundSpec(task=task, number=3, model_version=2, model_digest=source(32))
        # Any bits at all: rows are never read as numbers on the way, so even NaN arrives as it was.
        kind = "<f2" if task.row_bits == HALF else "<f4"
        bits = np.frombuffer(source(task.row_bits // 8 * task.items * task.row_width), dtype=kind)
        if task.row_bits == HALF:  # a NaN has several encodings, of which a conversion may take another
            bits = np.where(np.isfinite(bits), bits, np.float16(1.5))
        self.table: Rows = bits.astype(np.float32).reshape(task.items, task.row_width)
        self.parties = [PartyRound(self.round, party, self.table, backend=Portable()) for party in (0, 1)]

    def play(self, counts: list[int]) -> Json:
        """Return the whole round; the i-th device has `counts[i]` items."""
        sessions = [self._session(self._device(count)) for count in counts]
        counted = self.parties[0].complete()
        shares = [party.share(counted) for party in self.parties]
        return {
            "name": self.task.name,
            "task": self.task.encode().decode("ascii"),
            "round": self.round.encode().decode("ascii"),
            "table": each(self.table),
            "tags": each(tag_rows(self.round, self.table, Portable())[:, -1]),
            "order": self.round.layout.order().tolist(),
            "sessions": sessions,
            "counted": [name.hex() for name in counted],
            "shares": [_share(share) for share in shares],
            "sum": _share(shares[0] + shares[1]),
        }

    def _device(self, count: int) -> _Device:
        keys = np.frombuffer(self.source(8 * self.task.items), dtype="<u8")
        items = np.argsort(keys, kind="stable")[:count].astype(np.int64)
        recorder = Recorder(self.source)
        device = DeviceSession(self.round, items, random_bytes=recorder, backend=Portable())
        inputs = {"items": items.tolist(), "drawn": recorder.drawn.hex(), "seeds": [s.hex() for s in _seeds(recorder)]}
        return _Device(
            inputs, device, self._reals(count, self.task.row_width), items, self._reals(self.task.dense_size)
        )

    def _reals(self, *shape: int) -> npt.NDArray[np.float64]:
        """Return numbers between −11 and 11 that fixed point cannot hold exactly."""
        count = int(np.prod(shape))
        return np.frombuffer(self.source(2 * count), dtype="<i2").reshape(shape).astype(np.float64) / 3000.0

    def _session(self, device: _Device) -> Json:
        keys, session_id = device.session.keys, device.session.session_id
        answers = (self.parties[0].keys(session_id, keys[0]), self.parties[1].keys(session_id, keys[1]))
        items, rows = device.session.read(answers)
        updates = device.session.write(device.items, device.updates, device.dense)
        for party in (0, 1):
            self.parties[party].update(session_id, updates[party])
        return {
            **device.inputs,
            **self._placed(device),
            "session_id": session_id.hex(),
            "keys": [message.hex() for message in keys],
            "keys_digest": public_keys_digest(keys[0]).hex(),
            "answers": [message.hex() for message in answers],
            "read_items": items.tolist(),
            "read_rows": each(rows),
            "updates": [hex_floats(row) for row in device.updates],
            "dense": hex_floats(device.dense),
            "update": [message.hex() for message in updates],
            "update_digest": public_update_digest(self.round, updates[0]).hex(),
            "holds": [hold.hex() for hold in device.session.holds],
            "proofs": [mac.hex() for mac in device.session.marks.macs],
        }

    def _placed(self, device: _Device) -> Json:
        """Return where the device's items went and the update of every slot in the ring."""
        task, placement = self.task, self.round.layout.place(device.items, _again(device))
        payload = placement.arrange(device.items, task.ring.encode(device.updates, bound=task.bound))
        return {
            "slot_items": placement.items.tolist(),
            "slot_leaves": placement.leaves.tolist(),
            "truncated": placement.truncated,
            "payload": [task.ring.pack(row).hex() for row in payload],
            "dense_elements": task.ring.pack(task.ring.encode(device.dense, bound=task.bound)).hex(),
        }


def _seeds(recorder: Recorder) -> tuple[bytes, bytes]:
    """Return the master seeds, which a device draws last."""
    return recorder.drawn[-32:-16], recorder.drawn[-16:]


def _again(device: _Device) -> Replay:
    """Return the bytes that the placement drew: all between the session's name and the seeds."""
    return Replay(bytes.fromhex(device.inputs["drawn"])[16:-32])


def _share(share: Share) -> Json:
    return {"rows": [share.ring.pack(row).hex() for row in share.rows], "dense": share.ring.pack(share.dense).hex()}


def sums() -> Json:
    """Both kinds, in tasks of both rings: the ring of a secure sum is not the task's."""
    rounds = [(task, kind) for task in (binned(), direct()) for kind in (SURVEY, EVALUATE)]
    return {"rounds": [_Sum(task, kind, Source(f"sums {task.name} {kind}")).play() for task, kind in rounds]}


class _Sum:
    """A round in which devices add numbers up, seen by both parties."""

    def __init__(self, task: TaskSpec, kind: str, source: Source) -> None:
        self.source = source
        self.round = RoundSpec(task=task, number=4, model_version=2, model_digest=source(32), kind=kind)
        self.shares: list[RingArray] = [np.zeros(self.round.sum_size, dtype=SUM_RING.dtype) for _ in (0, 1)]

    def play(self) -> Json:
        """Return the whole sum: two devices with numbers of their own, one at the bound and one with nothing to say."""
        size = self.round.sum_size
        devices = [self._measured(), self._measured(), np.full(size, SUM_BOUND * 2.0**-16), np.zeros(size)]
        sessions = [self._session(values) for values in devices]
        total: RingArray = self.shares[0] + self.shares[1]
        return {
            "task": self.round.task.encode().decode("ascii"),
            "round": self.round.encode().decode("ascii"),
            "sum_size": size,
            "sessions": sessions,
            "shares": [plain(share) for share in self.shares],
            "sum": plain(total),
            "totals": hex_floats(SUM_RING.decode(total)),
        }

    def _measured(self) -> Reals:
        """Return what a device might find: whole numbers where something is counted, thirds where it is measured."""
        found = 1.0 + self.source.below(500, self.round.sum_size)
        counted = np.isin(np.arange(found.size), (0, 3, 4, 10, 11))
        return np.where(counted, found, found / 3.0)

    def _session(self, values: Reals) -> Json:
        session_id, seed = self.source(16), self.source(16)
        elements = SUM_RING.encode(values, bound=SUM_BOUND)
        key = self.round.label(session_id).key(Purpose.SUM_SHARE, seed)
        share = secure_sum.hide(key, elements, Portable())
        self.shares[0] += share
        secure_sum.add_seeded(key, self.shares[1], Portable())
        messages = (
            encode_sum_share(self.round, session_id, 0, share),
            encode_sum_share(self.round, session_id, 1, seed),
        )
        return {
            "session_id": session_id.hex(),
            "values": hex_floats(values),
            "elements": plain(elements),
            "seed": seed.hex(),
            "messages": [message.hex() for message in messages],
        }
