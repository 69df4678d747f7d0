"""Known-answer vectors: every derivation and message of the protocol, made by the portable definition.

Implementations in other languages are checked against them; `docs/reference/protocol.md` says how to read them.
A vector that changes is a protocol that changed.
"""

from pathlib import Path

from secemb_lab.vectors import (
    primitives,
    refused_macs,
    refused_messages,
    refused_relays,
    refused_specs,
    relays,
    sessions,
    specifications,
    trees,
)
from secemb_lab.vectors.document import Json, text
from secemb_shared.labels import PROTOCOL

__all__ = ["build", "write"]


def _negative() -> Json:
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


_BUILDERS = {
    "labels": primitives.labels,
    "prg": primitives.prg_,
    "permutation": primitives.permutation,
    "ring": primitives.ring,
    "tags": primitives.tags,
    "paths": trees.paths,
    "convert": trees.convert,
    "specs": specifications.specs,
    "session": sessions.session,
    "sums": sessions.sums,
    "short": sessions.short,
    "relay": relays.relay,
    "negative": _negative,
}


def build() -> dict[str, str]:
    """Return the text of every vector file by its name; two calls return the same."""
    return {f"{name}.json": text(_document(name)) for name in _BUILDERS}


def write(directory: Path) -> list[str]:
    """Write every vector file into `directory` and return their names."""
    directory.mkdir(parents=True, exist_ok=True)
    made = build()
    for name, content in made.items():
        (directory / name).write_text(content, encoding="ascii", newline="\n")
    return list(made)


def _document(name: str) -> Json:
    return {"protocol": PROTOCOL.decode(), **_BUILDERS[name]()}
