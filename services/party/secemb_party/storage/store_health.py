"""Whether the object store works, as the readiness check reports it."""

import asyncio

from secemb_party.errors import StorageUnavailableError
from secemb_party.parts import Clock
from secemb_party.storage.objects import Objects

_FRESH_SECONDS = 5.0  # a probe is a request for every readiness check, which anyone on the network may make


class StoreHealth:
    """The last result of a probe of the object store; without one there is nothing to probe."""

    def __init__(self, objects: Objects | None, steady: Clock) -> None:
        self._objects, self._steady = objects, steady
        self._fault: str | None = None
        self._asked = float("-inf")

    async def fault(self) -> str | None:
        """Return what is wrong and how to fix it, or None."""
        if self._objects is not None and self._steady() - self._asked >= _FRESH_SECONDS:
            self._asked = self._steady()
            try:
                await asyncio.to_thread(self._objects.check)
                self._fault = None
            except StorageUnavailableError as error:
                self._fault = str(error)
        return self._fault
