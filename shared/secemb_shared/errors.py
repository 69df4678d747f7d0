"""All errors that the product raises deliberately, as one tree.

SecEmbError
├── RingError              a number does not fit the fixed-point ring
│   ├── NotFiniteError         NaN or infinity
│   ├── OutOfRangeError        beyond what the ring or the task's bound can hold
│   └── OverflowBudgetError    a whole cohort could wrap around
├── LayoutError            an invalid catalogue, capacity or placement
├── PathSpentError         a path secret was requested a second time
├── SessionError           a session that is unknown, incomplete, or reused with different bytes
├── SpecError              a task or round specification that is not valid
├── SuccessionError        a successor that does not continue the task, or is not signed by both of its servers
├── RowMapError            a map of rows that does not lead from a task to its successor
├── CatalogueError         a file that is not a catalogue, or an id that is not in it
├── MacError               an upload that is not from the device that made the session's keys
├── MessageError           received bytes that do not match the round's specification
│   ├── LengthError            too short, too long, trailing bytes
│   ├── VersionError           a different version of the protocol
│   ├── KindError              a different kind of message
│   ├── BindingError           made for another task, round, session or purpose
│   ├── EncodingError          right length, but not the canonical encoding
│   ├── BoxError               a box that cannot be decrypted: altered, or made for another place
│   ├── AlteredError           bytes that do not match the digest in the device's box
│   ├── OtherRoundError        made for a different round than the one it was sent to
│   └── RelayKeyError          a relay key that is not signed by the task's server 1
└── RowTagError            rows that are altered, stale or not the ones requested

Messages say what was expected and what to do. They never contain an item, a value, a key or a seed.
"""


class SecEmbError(Exception):
    """Base class of all errors that this product raises deliberately."""


class RingError(SecEmbError, ValueError):
    """A number does not fit the fixed-point ring."""


class NotFiniteError(RingError):
    """NaN or infinity cannot be encoded."""


class OutOfRangeError(RingError):
    """A number is larger than the ring or the task's bound allows."""


class OverflowBudgetError(RingError):
    """The sum over a full cohort could overflow the ring."""


class LayoutError(SecEmbError, ValueError):
    """An impossible layout, or items that do not belong to it."""


class PathSpentError(SecEmbError, RuntimeError):
    """A path secret was used before: a second correction word would reveal the difference of two payloads."""


class SessionError(SecEmbError, RuntimeError):
    """A session is unknown or incomplete, or was used before with different bytes."""


class SpecError(SecEmbError, ValueError):
    """A task or round specification is not valid."""


class SuccessionError(SecEmbError, ValueError):
    """A task does not continue another one, or the servers of that task have not signed it."""


class RowMapError(SecEmbError, ValueError):
    """A map of rows does not lead from a task to its successor."""


class CatalogueError(SecEmbError, ValueError):
    """A file is not a catalogue, or an id is not in it."""


class MacError(SecEmbError):
    """The MAC of an upload is missing or wrong, so it is not from the device with the session's keys."""


class MessageError(SecEmbError, ValueError):
    """A received message does not match the round's specification."""


class LengthError(MessageError):
    """A message is too short or too long."""


class VersionError(MessageError):
    """A message uses an unsupported protocol version."""


class KindError(MessageError):
    """A message is of a different kind than expected."""


class BindingError(MessageError):
    """A message is for another task, round, session or purpose."""


class EncodingError(MessageError):
    """A message has the right length but is not a canonical encoding."""


class BoxError(MessageError):
    """A box cannot be decrypted: it was altered, or made for another key, task, round, session or step."""


class AlteredError(MessageError):
    """The relayed bytes do not match the digest that the device put into the box."""


class OtherRoundError(MessageError):
    """A relayed message is for a different round than the one it was sent to."""


class RelayKeyError(MessageError):
    """A relay key is not signed by the identity that the task names."""


class RowTagError(SecEmbError):
    """The rows received are altered, stale or not the ones requested."""
