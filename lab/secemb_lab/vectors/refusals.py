"""Vectors of what must be refused: bytes that nearly are a message or a specification, and the error each one gets."""

from secemb_lab.vectors import refused_macs, refused_messages, refused_relays, refused_specs
from secemb_lab.vectors.document import Json


def negative() -> Json:
    """One good round, what is accepted in it, and what is refused with which error."""
    good = refused_messages.GoodRound()
    macs = refused_macs.GoodMacs(good)
    relayed = refused_relays.GoodRelay(good, macs)
    return {
        **good.described(),
        **macs.described(),
        **relayed.described(),
        "accepted": [
            *refused_messages.accepted(good),
            *refused_macs.accepted(macs),
            *refused_relays.accepted(relayed),
            *refused_specs.accepted(good.round),
        ],
        "refused": [
            *refused_messages.refused(good),
            *refused_messages.refused_rows(good),
            *refused_macs.refused(macs),
            *refused_relays.refused(relayed),
            *refused_specs.refused_tasks(good.task),
            *refused_specs.refused_rounds(good.round),
        ],
    }
