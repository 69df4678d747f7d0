"""How the steps of this package reach the servers: whoever runs them has a deadline and a way to try again."""

from typing import Protocol

from secemb_sdk.effects import Answer, Request, Steps


class Ask(Protocol):
    """Sends requests at the same time, again if they were lost, and returns one answer for each, of whatever status."""

    def __call__(self, *requests: Request) -> Steps[list[Answer]]:
        """Return the answers in the order of the requests."""
