"""How a service treats memory that it has no use for at the moment."""

import ctypes
import gc
from contextlib import suppress

# Of <malloc.h>, where the C library is glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 64 << 20  # bytes that each thread may keep
_LARGE = 32 << 20  # bytes from which on a piece comes from the system and goes back there; glibc takes no more


def settle() -> None:
    """Call it once everything is loaded, before anybody is served."""
    gc.collect()
    gc.freeze()  # what is here by now stays: looking through it for garbage took a tenth of a session's processor time
    # A round's bodies are read some megabytes at a time. glibc would give them back to the system each time, which then
    # fills every page with zeros when it is wanted again.
    with suppress(OSError, AttributeError):  # another C library, which has its own ways
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)
