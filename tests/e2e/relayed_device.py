"""A device that talks to server 0 alone; what is for server 1 goes through it in boxes."""

from collections.abc import Sequence

import numpy as np
from tests.e2e.devices import Device

from secemb_shared.messages import Kind
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed


class RelayedDevice(Device):
    """One relayed device in one round."""

    def content(self, kind: Kind) -> bytes:
        """Return what is in a message's box: server 0 must not read it."""
        if kind is Kind.RELAYED_KEYS:
            return box_content(self.session.round, Kind.KEYS, self.session.keys[1])
        assert self.updates is not None
        return box_content(self.session.round, Kind.UPDATE, self.updates[1], mac=self.session.marks.macs[1])

    def relayed(self, kind: Kind) -> bytes:
        """Return a message with its box, which is sealed anew each time."""
        own = self.session.keys[0] if kind is Kind.RELAYED_KEYS else (self.updates or (b"",))[0]
        round_ = self.session.round
        key = RelayKey.read(round_.task, self.relay)
        return encode_relayed(round_, self.session_id, kind, own, self.content(kind), key)

    async def send_keys(self) -> None:
        self.answers = [await self.put(0, "relayed-keys", self.relayed(Kind.RELAYED_KEYS))]
        items, rows = self.session.read_relayed(self.answers[0])
        model = self._servers.model(0, self.session.round.model_version)
        assert np.array_equal(rows, model.rows[items])
        self.updates = self.session.write(items, self.update_rows, self.update_dense)

    async def send_update(self, roles: Sequence[int] = (0, 1)) -> None:
        assert tuple(roles) == (0, 1), "one message is for both servers"
        receipt = await self.put(0, "relayed-update", self.relayed(Kind.RELAYED_UPLOAD))
        assert self.session.marks.receipt.hex() in receipt.decode()
        self.receipts.append(receipt.decode())
