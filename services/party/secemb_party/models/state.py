"""What an optimiser must remember between two rounds, so that a restarted server goes on as if nothing had happened."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from secemb_party.models.model import Floats, check_origin, little_endian
from secemb_shared.messages import canonical

_DOMAIN = b"secemb/1 optimiser"


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimiserState:
    """The memory of an optimiser after the step that led to `version` of the model."""

    task_id: bytes = field(repr=False)
    version: int
    kind: str  # which optimiser it is of
    steps: int  # how many it has made
    tensors: Mapping[str, Floats] = field(repr=False)

    def __post_init__(self) -> None:
        check_origin(self.task_id, self.version)

    @property
    def digest(self) -> bytes:
        """Return 32 bytes that cover every field; they guard the file and are not part of the protocol."""
        names = sorted(self.tensors)
        head = canonical.encode(
            {
                "kind": self.kind,
                "steps": self.steps,
                "task": self.task_id.hex(),
                "tensors": {name: "x".join(map(str, self.tensors[name].shape)) for name in names},
                "version": self.version,
            }
        )
        hashed = hashlib.sha256(_DOMAIN + len(head).to_bytes(8, "little") + head)
        for name in names:
            hashed.update(little_endian(self.tensors[name]))
        return hashed.digest()
