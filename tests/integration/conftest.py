"""Fixtures of the integration tests."""

from tests.integration.databases import home, ledger, place, postgres, rival
from tests.integration.object_server import object_server

__all__ = ["home", "ledger", "object_server", "place", "postgres", "rival"]
