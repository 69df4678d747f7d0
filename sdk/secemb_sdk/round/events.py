"""Selects the events that a device uses in a round, if its task predicts the next event (`loss` is `next`).

    train      a window of consecutive events, drawn in each round, and strangers; never the newest event
    survey     all different items
    evaluate   the newest event, which is held out; strangers to rank it among; and the events before it

Only the newest event is held out, and only until there is a newer one, so the model is always evaluated on an event
that it has not seen. A device with `hold_out=0` trains on all events, and evaluates nothing.
"""

from dataclasses import replace

import numpy as np

from secemb_sdk.models.interface import SequenceModel
from secemb_sdk.models.window import newest
from secemb_sdk.round.selection import Selection, draw_strangers
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.measures import count_strangers
from secemb_shared.messages.spec import EVALUATE, TRAIN
from secemb_shared.randomness import Indices, RandomBytes

_SEED_BYTES = 8


def select_events(
    round_: RoundSpec, model: SequenceModel, events: Indices, *, hold_out: bool, random_bytes: RandomBytes
) -> Selection:
    """Return the selection of a device with these events, in time order."""
    task, known = round_.task, in_catalogue(events, round_.task.items)
    unknown = events.size - known.size
    if round_.kind == EVALUATE:
        found = _select_to_measure(round_, model, known, random_bytes) if hold_out else Selection.of({}, 0)
        return replace(found, left_out=unknown)
    if round_.kind != TRAIN:
        return Selection.of(dict.fromkeys(known.tolist(), 1.0), unknown)
    trained = before_last(known) if hold_out else known
    drawn = model.draw(trained, items=task.items, room=task.capacity, random_bytes=random_bytes)
    used = 0 if drawn.window is None else drawn.window.events.size
    return Selection(
        items=drawn.items,
        values=drawn.values,
        held_out=np.zeros(drawn.items.size, dtype=np.bool_),
        left_out=unknown + trained.size - used,
        window=drawn.window,
    )


def in_catalogue(events: Indices, items: int) -> Indices:
    """Return the events whose items are in a catalogue of this size."""
    return events[events < items]


def before_last(events: Indices) -> Indices:
    """Return the events before the newest one, which is held out; a single event has none before it."""
    return events[:-1] if events.size > 1 else events


def _select_to_measure(round_: RoundSpec, model: SequenceModel, known: Indices, random_bytes: RandomBytes) -> Selection:
    if known.size < 2:
        return Selection.of({}, 0)
    capacity, held = round_.task.capacity, int(known[-1])
    strangers = draw_strangers(round_.task.items, count_strangers(capacity), set(known.tolist()), random_bytes)
    history = newest(before_last(known), min(model.length, capacity - 1 - strangers.size))
    own = np.union1d(history.items, [held])
    seed = int.from_bytes(random_bytes(_SEED_BYTES), "little")  # of the strangers whose rows are not read
    items = np.concatenate([own, strangers])
    of_strangers = np.full(strangers.size, np.nan, np.float32)
    return Selection(
        items=items,
        values=np.concatenate([np.ones(own.size, np.float32), of_strangers]),
        held_out=items == held,
        left_out=0,
        window=None
        if history.window is None
        else replace(history.window.move(np.searchsorted(own, history.items)), seed=seed),
    )
