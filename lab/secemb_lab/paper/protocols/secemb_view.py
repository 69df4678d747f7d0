"""The view that one server of SecEmb has of one device, in the form used by the attack on other protocols."""

import numpy as np

from secemb_lab.paper.protocols.server_view import ServerView
from secemb_sdk.round.session import DeviceSession
from secemb_shared import row_access
from secemb_shared.dpf import RingArray, default_backend
from secemb_shared.dpf.paths import control_bits
from secemb_shared.messages import RoundSpec, decode_keys, decode_update
from secemb_shared.randomness import Indices


def view_of_secemb(round_: RoundSpec, party: int, items: Indices, update: RingArray) -> ServerView:
    """Run a device's session with this update (items, width), and return the view of one server.

    The rows are the server's share of the device's update. Named are the items at which the server's own control bit
    is set in a tree: what singles an item out in the clear sum of both servers' bits.
    """
    session = DeviceSession(round_, items)
    values = update[items].view(np.int32) / 2.0**round_.task.fraction_bits
    messages = session.write(items, values, np.zeros(round_.task.dense_size))
    backend, geometry = default_backend(), round_.task.geometry
    held = decode_keys(round_, session.session_id, party, session.keys[party])
    words, _ = decode_update(round_, session.session_id, party, messages[party])
    sums = row_access.empty_sums(round_)
    row_access.accumulate(round_, held, words[None], sums, backend)
    chosen = control_bits(backend.expand(held, geometry.leaves)).astype(bool)  # (leaves, slots)
    order = round_.leaf_table.order[np.arange(geometry.slots) // geometry.slots_per_bin].T
    named = np.unique(order[chosen])
    return ServerView(named[named >= 0].astype(np.int64), sums)
