"""Replicas on one machine need a ledger that several processes may use."""

from pathlib import Path

import pytest

from secemb_party.settings import Ledger, Settings
from secemb_tools.errors import OperationError
from secemb_tools.operate.supervisor import supervise


def test_replicas_of_a_server_whose_ledger_is_not_shared_are_refused_before_any_starts() -> None:
    settings = Settings.model_construct(ledger=Ledger())
    with pytest.raises(OperationError, match=r"PostgreSQL: set url and shared = true in \[ledger\]"):
        supervise(Path("server0"), settings, 2)
