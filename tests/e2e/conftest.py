"""Fixtures of the end-to-end tests."""

from tests.integration.databases import postgres

__all__ = ["postgres"]
