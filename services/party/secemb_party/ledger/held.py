"""A connection to SQLite for each thread: to get one from the pool costs as much as a small statement."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine


class HeldConnection:
    """A thread's own connection, kept from one transaction to the next; one that failed goes back to the pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run one transaction."""
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            with self._connection.begin():
                yield self._connection
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection back."""
        held, self._connection = self._connection, None
        if held is not None:
            held.close()
