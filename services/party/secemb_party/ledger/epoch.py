"""Fencing: of all processes of a server, only the newest conductor may write what a conductor decides.

A process that becomes the conductor raises the epoch in the ledger. Each of its transactions then checks, under a lock
on the epoch's row, that the epoch is still its own. A process that was paused or cut off while another took over is
refused, whatever it believes: its transaction comes before the new epoch, or fails.
"""

from sqlalchemy import Connection, bindparam, select, update

from secemb_party.errors import LedgerTakenError
from secemb_party.ledger.database import insert_new, writes_alone
from secemb_party.ledger.schema import conductor

_NAME = "conductor"
_EPOCH = select(conductor.c.epoch).where(conductor.c.name == bindparam("name_"))
_RAISE = update(conductor).where(conductor.c.name == bindparam("name_")).values(epoch=conductor.c.epoch + 1)
_LOCKED = _EPOCH.with_for_update(read=True)  # shared: transactions of one conductor do not wait for each other


def raise_epoch(tx: Connection) -> int:
    """Begin a new epoch and return it; this waits for the transactions of the one before."""
    insert_new(tx, conductor, {"name": _NAME, "epoch": 0})
    tx.execute(_RAISE, {"name_": _NAME})
    epoch: int = tx.execute(_EPOCH, {"name_": _NAME}).scalar_one()
    return epoch


def check_epoch(tx: Connection, epoch: int) -> None:
    """Raise unless this is the current epoch; it stays the current one until the transaction ends."""
    current = tx.execute(_EPOCH if writes_alone(tx) else _LOCKED, {"name_": _NAME}).scalar_one_or_none()
    if current != epoch:
        raise LedgerTakenError("another process of this server conducts the rounds now; this one only answers devices")
