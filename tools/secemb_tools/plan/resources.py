"""Memory, disk and traffic of the two servers, from the task alone. `make memory` compares with real servers.

A server of a large catalogue holds several arrays of the size of its table at once. Which ones is read from the code:
the formulas name them, and must follow when the code changes.
"""

from secemb_party.evaluation import BATCH
from secemb_shared.messages import Sizes, TaskSpec

PREPARED = 2  # rounds whose tagged tables are kept: the open one and the one before
_PROCESS = 215_000_000  # Python, libraries, and what the allocator keeps of freed blocks
_RETURNED = 32 << 20  # bytes: smaller blocks are not given back to the system (secemb_party.http.listeners)
_UNRETURNED = 3  # arrays of the size of the table, freed and kept, where they are smaller
_FLOAT, _DOUBLE = 4, 8
_MOMENTS = {"adam": 2, "momentum": 1, "sgd": 0}
_KEPT_VERSIONS, _KEPT_ROUNDS = 3, 3  # of models; of bodies and shares: the default of keep_bodies_rounds
_SESSION_IN_LISTS = 600  # bytes of one session in the lists that the servers exchange


def numbers_of(task: TaskSpec) -> int:
    """Return how many numbers the model has."""
    return task.items * task.row_width + task.dense_size


def memory_of_server0(task: TaskSpec) -> int:
    """Return the peak: while two shares are added, while the optimiser steps, or while its state is stored."""
    numbers, element, moments = numbers_of(task), task.ring.element_bytes, _MOMENTS[task.optimiser]
    adding = 5 * element  # two shares as bytes, both decoded, and their sum
    stepping = element + _DOUBLE + (moments + 2) * _FLOAT  # the sum, the mean gradient, moments, old and new model
    storing = element + (4 * moments + 1) * _FLOAT  # the sum, the model; moments held, copied, as bytes, as a file
    return _common(task) + numbers * max(adding, stepping, storing)


def memory_of_server1(task: TaskSpec) -> int:
    """Return the peak: while a share is encoded and sent, or while a model arrives and is stored."""
    numbers, element = numbers_of(task), task.ring.element_bytes
    sharing = 3 * element  # the sum, its bytes, and what the connection has not sent yet
    publishing = 4 * _FLOAT  # the body, its decoded numbers, these as bytes, as a file
    return _common(task) + numbers * max(sharing, publishing)


def _common(task: TaskSpec) -> int:
    tagged = _FLOAT * task.items * (task.row_width + 1)
    leaves = _FLOAT * task.tables * task.bins * task.geometry.leaves
    sizes = Sizes.of(task)
    kept = _UNRETURNED * tagged if tagged < _RETURNED else 0
    return _PROCESS + kept + PREPARED * (tagged + leaves) + BATCH * (sizes.keys + max(sizes.update))


def stored_per_round(task: TaskSpec) -> int:
    """Return the bytes of bodies that a full round brings to a server."""
    sizes = Sizes.of(task)
    return task.cohort * (sizes.keys + max(sizes.update))


def disk_of_server0(task: TaskSpec) -> int:
    """Return what is stored at most: models and the optimiser's state with one being written, shares, and bodies."""
    numbers, moments = numbers_of(task), _MOMENTS[task.optimiser]
    models = (_KEPT_VERSIONS + 1 + 2 * moments) * _FLOAT * numbers
    shares = (_KEPT_ROUNDS + 1) * task.ring.element_bytes * numbers
    return models + shares + (_KEPT_ROUNDS + 1) * stored_per_round(task)


def peer_bytes(task: TaskSpec) -> int:
    """Return what the servers exchange in a round: a share, a model and the lists of sessions."""
    return (task.ring.element_bytes + _FLOAT) * numbers_of(task) + _SESSION_IN_LISTS * task.cohort


def relayed_bytes(task: TaskSpec) -> int:
    """Return what comes on top where devices send everything through server 0: what it passes on, and answers."""
    sizes = Sizes.of(task)
    return task.cohort * (sizes.relayed_upload + sizes.relayed_download)


def largest_body(task: TaskSpec) -> int:
    """Return the largest message between the servers: a share or a model, each in one body."""
    return max(task.ring.element_bytes, _FLOAT) * numbers_of(task)
