"""Server 0's part in ending its task: it asks server 1 between two rounds, and follows its decision.

Server 0 asks only if both operators have agreed to the same successor. It makes the successor's first version and the
optimiser's state before it signs. If the answer is lost, it asks again before it opens a round; if the agreement was
withdrawn in the meantime, server 1 refuses the next round and shows the link instead.
"""

import json

from secemb_party.errors import PeerRefusedError
from secemb_party.logs import Outage
from secemb_party.peer_messages import SuccessionOffer
from secemb_party.service import Party
from secemb_party.succession import Agreement
from secemb_party.succession.errors import PeerSucceededError, SuccessionRefusedError
from secemb_server0.inherited_state import inherit_state
from secemb_server0.peer import Peer
from secemb_shared.errors import SecEmbError
from secemb_shared.messages.succession import Link, Succession


class Switch:
    """The switch of one task to its successor."""

    def __init__(self, party: Party, peer: Peer) -> None:
        self._party, self._peer, self._successions = party, peer, party.successions
        self._agreed_there: str | None = None  # digest of what server 1's operator has agreed to
        self._refused = Outage("the switch to the successor was refused", "the switch to the successor is possible")

    def hear(self, agreed: str | None) -> bool:
        """Remember what server 1's operator has agreed to; return whether both operators now agree."""
        self._agreed_there = agreed
        return self.wanted

    @property
    def wanted(self) -> bool:
        """Return whether both operators have agreed to the same successor, and the switch has not happened."""
        agreed = self._successions.agreed
        return self._successions.link is None and agreed is not None and agreed.digest == self._agreed_there

    async def carry_out(self) -> None:
        """Switch, if server 1 does; only while no round is open."""
        agreed = self._successions.agreed
        published = await self._party.ledger.published_version(self._party.task.task_id)
        last = await self._party.ledger.last_round(self._party.task.task_id)
        if agreed is None or published is None:
            return
        try:
            named = await self._party.workers.run(lambda: self._successions.prepare(agreed, published))
            await self._party.workers.run(lambda: self._keep_state(agreed))
            own, after = self._successions.sign(named), -1 if last is None else last.number
            offer = SuccessionOffer(document=named.encode().decode(), signature=own.hex(), after=after)
            other = bytes.fromhex(await self._peer.succeed(offer))
        except PeerSucceededError:
            await self.learn()
        except (PeerRefusedError, SuccessionRefusedError) as error:
            self._agreed_there = None  # until server 1 confirms it again
            self._refused.failed(str(error))
        else:
            await self._successions.commit(Link(task=agreed.task, succession=named, signatures=(own, other)))
            self._refused.worked()

    def _keep_state(self, agreed: Agreement) -> None:
        state = self._party.models.load_state()
        self._successions.store(agreed.task).save_state(inherit_state(state, agreed.task, agreed.rows))

    async def learn(self) -> None:
        """Follow a switch that server 1 has made and this server has missed; the link shows this server's consent."""
        try:
            link = Link.from_json(json.loads(await self._peer.successor()))
        except (ValueError, SecEmbError) as error:
            raise PeerRefusedError(f"server 1 says that the task has a successor, but shows none: {error}") from error
        link.check(self._party.task)
        await self._restore(link.succession)
        await self._successions.commit(link)

    async def _restore(self, named: Succession) -> None:
        """Raise unless the first version is here, as it was when this server signed."""
        held = await self._party.workers.run(lambda: self._successions.recall(named))
        if held is None:
            raise SuccessionRefusedError(
                "server 1 has switched to a successor that this server's operator has withdrawn; agree to it again"
            )
        first = await self._party.workers.run(lambda: self._successions.store(held.task).load(0))
        if first.digest.hex() != named.first_digest:
            raise SuccessionRefusedError("the first model of the successor is not the one that both servers signed")
