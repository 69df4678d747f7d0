"""The durable records of one server: what it has acknowledged, decided and published.

Every method of `Ledger` that changes something is one transaction, can be repeated, and is safe against concurrent
tasks and processes. The ledger has no clock and holds nothing secret: tokens are hashes, bodies of sessions are opaque.
"""

from secemb_party.ledger.ledger import Ledger
from secemb_party.ledger.records import (
    Action,
    Added,
    Admission,
    Conduct,
    Counts,
    Event,
    Instruction,
    ModelVersion,
    NewRound,
    NewToken,
    Rollback,
    RoundRecord,
    RoundState,
    SessionSummary,
    Stored,
    Suspect,
    TakenSeats,
    TaskRecord,
    Token,
    TokenState,
    Turnout,
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
    "Instruction",
    "Ledger",
    "ModelVersion",
    "NewRound",
    "NewToken",
    "Rollback",
    "RoundRecord",
    "RoundState",
    "SessionSummary",
    "Stored",
    "Suspect",
    "TakenSeats",
    "TaskRecord",
    "Token",
    "TokenState",
    "Turnout",
    "Upload",
    "What",
    "Window",
    "allowed",
]
