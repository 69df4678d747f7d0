"""What an app says to open a device, checked before anything is touched."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Literal

from secemb_sdk.errors import AddressError, EnrolmentError, PinError, PolicyError
from secemb_sdk.home import Home
from secemb_sdk.models import Model
from secemb_sdk.parts import Clock, Parts
from secemb_sdk.policy import Policy
from secemb_sdk.sealing import Seal
from secemb_sdk.trust import Pins, Trust, check_address
from secemb_sdk.vault import Vault
from secemb_sdk.ways import DIRECT, RELAYED
from secemb_shared.randomness import RandomBytes, secure_bytes

_TASK_DIGITS = 64


@dataclass(kw_only=True)
class Opening:
    """The arguments of `Device.open` and `Device.open_blocking`."""

    home: Path | str  # a directory for this device and task alone; made if it is not there
    servers: tuple[str, str]  # addresses of server 0 and server 1
    task: str  # the task's id: 64 hexadecimal digits
    token: str | None = field(default=None, repr=False)  # from the operator of server 0; None where anybody may join
    model: Model | None = None  # None: matrix factorisation as wide as the task's rows
    key: bytes | None = field(default=None, repr=False)  # 16 or 32 random bytes; with it the home is encrypted
    policy: Policy | None = None
    pins: Sequence[Pins] | None = None  # for each server digests of public keys, of which it must show one
    trust: Trust = None  # an SSLContext or a file of authorities; None: those of the system
    rate: float | None = None  # at which the private part learns; None: the task's rate for rows
    epochs: int = 1  # passes over the ratings in a round
    hold_out: float = 0.1  # the fraction of ratings that is kept for evaluation and never trained on
    transport: Literal["direct", "relayed"] | None = None  # None: relayed where the task allows it
    clock: Clock = field(default=monotonic, repr=False)
    wall_clock: Clock = field(default=time, repr=False)
    random_bytes: RandomBytes = field(default=secure_bytes, repr=False)

    def __post_init__(self) -> None:
        if len(self.servers) != 2:
            raise AddressError("a device talks to two servers: give the addresses of server 0 and of server 1")
        if self.addresses[0] == self.addresses[1]:
            raise AddressError("both servers have the same address; two different operators must run them")
        if len(self.task) != _TASK_DIGITS or not set(self.task) <= set("0123456789abcdef"):
            raise PinError("a task's id is 64 lower-case hexadecimal digits; `secemb task show` prints it")
        if self.pins is not None and len(self.pins) != 2:
            raise PinError("pins are two lists of digests, one for each server")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise EnrolmentError("a token is one line of printable ASCII; copy it anew from the operator's message")
        if self.epochs < 1 or not 0 <= self.hold_out < 1:
            raise PolicyError("epochs must be at least 1, and hold_out at least 0 and below 1")
        if self.transport not in (None, DIRECT, RELAYED):
            raise PolicyError("transport is 'direct' or 'relayed', or None to let the task decide")

    @property
    def addresses(self) -> tuple[str, str]:
        """Return the servers' addresses in one form."""
        return check_address(self.servers[0]), check_address(self.servers[1])

    def open_home(self) -> Parts:
        """Take hold of the home, and return what the device's steps need."""
        home = Home(self.home, Seal(self.key))
        try:
            vault = Vault(home, random_bytes=self.random_bytes)
            vault.bind(bytes.fromhex(self.task), self.addresses)
        except BaseException:
            home.close()
            raise
        return Parts(
            vault=vault,
            task_id=bytes.fromhex(self.task),
            token=self.token,
            policy=self.policy or Policy(),
            model=self.model,
            rate=self.rate,
            epochs=self.epochs,
            hold_out=self.hold_out,
            transport=self.transport,
            clock=self.clock,
            wall_clock=self.wall_clock,
            random_bytes=self.random_bytes,
        )
