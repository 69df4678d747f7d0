"""The facts that server 0 decides by, as read from the ledger."""

from dataclasses import replace

from secemb_party.control import abort_reason
from secemb_party.ended_rounds import EndedRounds
from secemb_party.ledger import RoundRecord, RoundState, What
from secemb_party.service import Party
from secemb_server0.conductor import Facts
from secemb_server0.door import RoundTimer
from secemb_server0.kinds import ChooseKind, next_kind
from secemb_server0.pace import REMEMBERED, Forecast
from secemb_server0.panel import Panel, is_for_panel
from secemb_server0.seats import REMEMBERED as JUDGED
from secemb_server0.seats import Seats
from secemb_server0.succession import Switch
from secemb_shared.messages.spec import EVALUATE, TRAIN


class FactReader:
    """Reads the facts for a decision; seats, forecast and ended rounds are brought up to date with them."""

    def __init__(
        self,
        party: Party,
        *,
        choose_kind: ChooseKind,
        panel: Panel | None,
        seats: Seats,
        timer: RoundTimer,
        forecast: Forecast,
        switch: Switch,
    ) -> None:
        self._party, self._ledger, self._task = party, party.ledger, party.task
        self._choose_kind, self.panel, self._switch = choose_kind, panel, switch
        self.seats, self.timer, self.forecast = seats, timer, forecast
        self.patient = party.task.privacy is None or not party.task.privacy.sampling_rate
        self.ended_rounds: EndedRounds | None = None  # None: nothing has been read
        self.spent_there: set[str] = set()  # kinds of round that server 1's privacy budget does not cover
        self.aborted_there: tuple[bytes, str] | None = None  # a round that server 1's operator has ended, and why

    async def facts(self, last: RoundRecord | None) -> Facts:
        """Return the facts about the latest round."""
        task = self._task
        requested = await self._ledger.open_rollback(task.task_id)
        facts = Facts(
            state=None,
            next_number=0 if last is None else last.number + 1,
            rounds=task.rounds,
            cohort=task.cohort,
            min_cohort=task.min_cohort,
            rollback_to=requested.source if requested is not None else None,
            patient=self.patient,
            paused=self._party.control.paused,
            draining=self._party.control.draining,
            succeeding=self._switch.wanted,
            succeeded=self._party.successions.link is not None,
        )
        if last is None or last.ended or self.ended_rounds is None:
            self.ended_rounds = await self._party.ended_rounds()
            self.seats.learn(await self._ledger.finished(task.task_id, self._party.clock(), rounds=JUDGED))
        if last is None or last.ended:
            self.forecast.learn(await self._ledger.rounds(task.task_id, limit=REMEMBERED))
            kind = await self._next_kind(last)
            return replace(
                facts,
                trained=await self._party.trained(),
                next_kind=kind,
                last_kind=last.kind if last is not None else None,
                affordable=await self._affords(kind),
            )
        deadlines = self.timer.of(last)
        facts = replace(
            facts,
            state=last.state,
            started=last.started,
            started_at=deadlines.join_until - task.join_seconds,
            join_until=deadlines.join_until,
            upload_until=deadlines.upload_until,
        )
        if last.state is not RoundState.OPEN:
            return facts  # no more sessions can join
        # Before the seats, so that complete sessions have one, however many join and upload in between.
        counts, told = await self._ledger.counts(last.round_id), self._party.control.of_round(last.round_id)
        abort = abort_reason(0, told.reason) if told is not None and told.what is What.ABORT else None
        if self.aborted_there is not None and self.aborted_there[0] == last.round_id:
            abort = self.aborted_there[1]
        return replace(
            facts,
            **await self.seats.facts(self._ledger, last.round_id, self._party.clock(), self._party.steady()),
            complete=counts.updates,
            closing=last.kind == EVALUATE and not await self._trains_on(),
            panel=last.kind == EVALUATE and await is_for_panel(self._ledger, last.round_id),
            close=told is not None and told.what is What.CLOSE,
            abort=abort,
        )

    async def _trains_on(self) -> bool:
        """Return whether there may be another training round."""
        return await self._party.trained() < self._task.rounds and await self._affords(TRAIN)

    async def _next_kind(self, last: RoundRecord | None) -> str:
        """Return the kind of the next round: training if the privacy budget has no room for a survey or evaluation."""
        task_id = self._task.task_id
        chosen = await next_kind(self._ledger, task_id, last, choose=self._choose_kind, panel=self.panel)
        return chosen if await self._affords(chosen) else TRAIN

    async def _affords(self, kind: str) -> bool:
        return kind not in self.spent_there and await self._party.spending.affords(kind)
