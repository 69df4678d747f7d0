"""Fixtures of the end-to-end tests."""

from tests.integration.databases import postgres
from tests.integration.object_server import object_server

__all__ = ["object_server", "postgres"]
