"""What a service does with its memory before it serves anybody; in processes of its own, for it is for all of one."""

import subprocess
import sys

FREED = """
import resource
from secemb_party.http.listeners import settle
{settle}
def faults():
    bodies = [bytes(60_000) for _ in range(256)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    del bodies
    bodies = [bytes(60_000) for _ in range(256)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(5)))
"""
FROZEN = "import gc; from secemb_party.http.listeners import settle; settle(); print(gc.get_freeze_count())"
ELSEWHERE = """
import ctypes, gc
from secemb_party.http.listeners import settle
def missing(_): raise OSError("there is no such library")
ctypes.CDLL = missing
settle()
print(gc.get_freeze_count())
"""


def printed(program: str) -> int:
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def test_what_a_batch_of_bodies_has_freed_is_there_for_the_next() -> None:
    assert printed(FREED.format(settle="settle()")) < 50
    assert printed(FREED.format(settle="")) > 500  # pages that the system had to fill anew: this can fail


def test_what_is_loaded_is_not_looked_through_again() -> None:
    assert printed(FROZEN) > 1000


def test_another_c_library_is_no_reason_to_fail() -> None:
    assert printed(ELSEWHERE) > 1000
