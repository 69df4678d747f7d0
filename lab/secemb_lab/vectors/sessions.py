"""Vectors of complete training rounds: every message of every session, what both parties sum, and what comes out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secemb_lab.party_round import PartyRound
from secemb_lab.vectors.document import Json, each, hex_floats, plain
from secemb_lab.vectors.source import Recorder, Replay, Source
from secemb_lab.vectors.specifications import binned, direct
from secemb_party.evaluation import Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared.dpf._portable import Portable
from secemb_shared.messages import RoundSpec, TaskSpec, public_keys_digest, public_update_digest
from secemb_shared.randomness import Indices
from secemb_shared.row_access import Rows, tag_rows


def session() -> Json:
    """Rounds in both layouts and both rings, with devices that have too many items, few, or none."""
    wide = binned(name="wide rows", items=9, capacity=6, tables=2, bins=4, row_width=65)
    single = direct(name="one item", items=1, capacity=1, row_width=1, dense_size=0)
    rounds = [(binned(), [15, 4, 0]), (direct(), [2, 6]), (wide, [6, 3]), (single, [1, 0])]
    return {"rounds": [_Round(task, Source(f"session {task.name}")).play(counts) for task, counts in rounds]}


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
        bits = np.frombuffer(source(4 * task.items * task.row_width), dtype="<f4").astype(np.float32)
        self.table: Rows = bits.reshape(task.items, task.row_width)
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
            "sum": _share(Share(shares[0].rows + shares[1].rows, shares[0].dense + shares[1].dense)),
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
            "payload": each(payload),
            "dense_elements": plain(task.ring.encode(device.dense, bound=task.bound)),
        }


def _seeds(recorder: Recorder) -> tuple[bytes, bytes]:
    """Return the master seeds, which a device draws last."""
    return recorder.drawn[-32:-16], recorder.drawn[-16:]


def _again(device: _Device) -> Replay:
    """Return the bytes that the placement drew: all between the session's name and the seeds."""
    return Replay(bytes.fromhex(device.inputs["drawn"])[16:-32])


def _share(share: Share) -> Json:
    return {"rows": each(share.rows), "dense": plain(share.dense)}
