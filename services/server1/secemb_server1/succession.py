"""Server 1's part in ending its task: it decides, because it signs a single document for a task, in one write."""

import json

from secemb_party.errors import PeerRefusedError
from secemb_party.peer_messages import SuccessionOffer
from secemb_party.service import Party
from secemb_party.succession.errors import TaskSucceededError
from secemb_server1.responder import Responder
from secemb_shared.errors import SuccessionError
from secemb_shared.messages.succession import Link, Succession, check_signature


class SuccessionResponder:
    """The calls by which server 0 ends the task."""

    def __init__(self, party: Party, responder: Responder) -> None:
        self._party, self._ledger, self._task = party, party.ledger, party.task
        self._successions, self._responder = party.successions, responder

    async def succeed(self, offer: SuccessionOffer) -> str:
        """Decide whether the task ends here with the successor that server 0 offers; return the signature.

        This server makes the first version independently. A repeated call gets the same signature.
        """
        named = Succession.decode(offer.document.encode())
        async with self._responder.opening:  # no round opens meanwhile
            held = self._successions.link
            if held is not None:
                if held.succession != named:
                    raise TaskSucceededError("this task already has another successor")
                return held.signatures[1].hex()
            self._responder.check_pause()
            return await self._decide(offer, named)

    async def _decide(self, offer: SuccessionOffer, named: Succession) -> str:
        agreed, last = self._successions.agreed, await self._ledger.last_round(self._task.task_id)
        if agreed is None:
            raise PeerRefusedError("the operator of server 1 has not agreed to a successor")
        if (last is not None and not last.ended) or offer.after != (-1 if last is None else last.number):
            raise PeerRefusedError("a round of the task has not ended on both servers")
        published = await self._ledger.published_version(self._task.task_id)
        if published is None:
            raise PeerRefusedError("no model is published on this server yet")
        if await self._party.workers.run(lambda: self._successions.prepare(agreed, published)) != named:
            raise PeerRefusedError(
                "the servers do not agree on the successor, its rows or its first model; compare what both operators"
                " have agreed to"
            )
        offered = bytes.fromhex(offer.signature)
        try:
            check_signature(self._task, named, offered, server=0)
        except SuccessionError as error:
            raise PeerRefusedError(str(error)) from error
        link = Link(task=agreed.task, succession=named, signatures=(offered, self._successions.sign(named)))
        return (await self._successions.commit(link)).signatures[1].hex()

    def successor(self) -> str:
        """Return the link to the task's successor, for a server 0 that has missed the answer."""
        link = self._successions.link
        if link is None:
            raise PeerRefusedError("this task has no successor here")
        return json.dumps(link.as_json())
