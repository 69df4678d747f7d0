"""Whether a device takes part in a round: a coin of its own, for tasks whose privacy counts on chance.

The coin of a round is a hash of the next session's seed, which is in the home before anybody hears of it. So asking
again does not toss again, however often the app is killed, and the next round has another coin.
"""

import hashlib

from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal

_DOMAIN = b"secemb/1 takes part"


def takes_part(task: TaskSpec, round_: bytes, seed: bytes) -> bool:
    """Tell whether the session of this seed takes part in a round."""
    if task.privacy is None or not task.privacy.rate:
        return True
    tossed = hashlib.blake2b(_DOMAIN + round_, key=seed, digest_size=8).digest()
    return int.from_bytes(tossed, "little") < decimal(task.privacy.rate) * 2.0**64
