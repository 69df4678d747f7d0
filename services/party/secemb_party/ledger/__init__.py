"""The durable memory of one server: what it has acknowledged, decided and published.

Every method of `Ledger` that changes something is one transaction, may be repeated, and may be raced by other tasks
and other processes. There is no clock in here and nothing secret: tokens are hashes, bodies of sessions are opaque.
"""

from secemb_party.ledger.ledger import Ledger
from secemb_party.ledger.records import (
    Action,
    Added,
    Admission,
    Conduct,
    Counts,
    Event,
    Finished,
    Instruction,
    ModelVersion,
    NewRound,
    NewToken,
    Rollback,
    RoundRecord,
    RoundState,
    Seats,
    SessionSummary,
    Stored,
    Suspect,
    TaskRecord,
    Token,
    TokenState,
    Upload,
    What,
    Window,
    allowed,
)

__all__ = [
    "Action",
    "Added",
    "Admission",
    "Conduct",
    "Counts",
    "Event",
    "Finished",
    "Instruction",
    "Ledger",
    "ModelVersion",
    "NewRound",
    "NewToken",
    "Rollback",
    "RoundRecord",
    "RoundState",
    "Seats",
    "SessionSummary",
    "Stored",
    "Suspect",
    "TaskRecord",
    "Token",
    "TokenState",
    "Upload",
    "What",
    "Window",
    "allowed",
]
