"""Fixtures of the integration tests."""

from tests.integration.databases import home, ledger, place, postgres, rival

__all__ = ["home", "ledger", "place", "postgres", "rival"]
