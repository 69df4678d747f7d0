"""The cost of a task for the two servers: time, memory, disk and traffic.

Times are measured: the servers' own functions run here on a small catalogue, and their times are scaled. The rest
follows from the task only, and `make memory` compares it with real servers. A server of a large catalogue holds
several arrays of the size of its table at once. They are derived from the code: the formulas name them, and must be
updated when the code changes.
"""

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

from secemb_party.evaluation import BATCH, Evaluation, KeysMessage, SessionBodies, Share
from secemb_party.storage import Model, ModelFiles, Shape, ShareFiles, first_model, read_all, sha256_of
from secemb_party.storage.publication import publication
from secemb_party.storage.retention import FEWEST
from secemb_sdk.round.session import DeviceSession
from secemb_server0.reconstruct import add_shares, take_step
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.row_words import HALF
from secemb_tools.specification import build_task

_SAMPLE_ITEMS = 60_000  # of the measured catalogue: larger than the processor's caches, but fast
_STEPS = 3  # of the optimiser in the measurement
_SAMPLE = 8  # sessions that are added together in the measurement
Work = Callable[[], object]

TURN_SECONDS = 0.002
PREPARED = 2  # rounds whose tagged tables are kept: the open one and the one before
_PROCESS = 215_000_000  # Python, libraries, and freed blocks kept by the allocator
_RETURNED = 32 << 20  # bytes: smaller blocks are not returned to the system (secemb_party.http.listeners)
_UNRETURNED = 3  # arrays of the size of the table that are freed but kept, if they are smaller
_FLOAT, _DOUBLE = 4, 8
_MOMENTS = {"adam": 2, "lazy-adam": 2, "momentum": 1, "sgd": 0}
_KEPT_ROUNDS = 3  # of bodies and shares: the default of keep_bodies_rounds
_SESSION_IN_LISTS = 600  # bytes of one session in the lists that the servers exchange


def numbers_of(task: TaskSpec) -> int:
    """Return how many numbers the model has."""
    return task.items * task.row_width + task.dense_size


def _moments(task: TaskSpec) -> int:
    """Return how many numbers an optimiser keeps for one of the model, its full precision among them."""
    return _MOMENTS[task.optimiser] + (task.row_bits == HALF)


def memory_of_server0(task: TaskSpec) -> int:
    """Return the peak: while two shares are added, during the optimiser's step, or while its state is stored."""
    numbers, element, moments = numbers_of(task), task.ring.dtype.itemsize, _moments(task)
    adding = 5 * element  # two shares as bytes, both decoded, and their sum
    stepping = element + _DOUBLE + (moments + 2) * _FLOAT  # the sum, the mean gradient, moments, old and new model
    storing = element + (4 * moments + 1) * _FLOAT  # the sum, the model; moments held, copied, as bytes, as a file
    return _common(task) + numbers * max(adding, stepping, storing)


def memory_of_server1(task: TaskSpec) -> int:
    """Return the peak: while a share is encoded and sent, or while a model arrives and is stored."""
    numbers, element = numbers_of(task), task.ring.dtype.itemsize
    sharing = 3 * element  # the sum, its bytes, and what the connection has not sent yet
    publishing = 4 * _FLOAT  # the body, its decoded numbers, these as bytes, as a file
    return _common(task) + numbers * max(sharing, publishing)


def _common(task: TaskSpec) -> int:
    tagged = _FLOAT * task.items * (task.row_words + 1)
    leaves = _FLOAT * task.tables * task.bins * task.geometry.leaves
    sizes = Sizes.of(task)
    kept = _UNRETURNED * tagged if tagged < _RETURNED else 0
    return _PROCESS + kept + PREPARED * (tagged + leaves) + BATCH * (sizes.keys + max(sizes.update))


def stored_per_round(task: TaskSpec) -> int:
    """Return the bytes of bodies that a server receives in a full round."""
    sizes = Sizes.of(task)
    return task.cohort * (sizes.keys + max(sizes.update))


def stored_per_version(task: TaskSpec) -> int:
    """Return the bytes of a version of the model with the optimiser's state, on server 0."""
    return (1 + _moments(task)) * _FLOAT * numbers_of(task)


def disk_of_server0(task: TaskSpec) -> int:
    """Return the disk space required: the minimum of kept versions and one being written, shares, and bodies."""
    models = (FEWEST + 1) * stored_per_version(task)
    shares = (_KEPT_ROUNDS + 1) * task.ring.element_bytes * numbers_of(task)
    return models + shares + (_KEPT_ROUNDS + 1) * stored_per_round(task)


def peer_bytes(task: TaskSpec) -> int:
    """Return the bytes that the servers exchange in a round: a share, a model and the lists of sessions."""
    return (task.ring.element_bytes + _FLOAT) * numbers_of(task) + _SESSION_IN_LISTS * task.cohort


def relayed_bytes(task: TaskSpec) -> int:
    """Return the additional bytes if devices send everything through server 0: forwarded messages, and answers."""
    sizes = Sizes.of(task)
    return task.cohort * (sizes.relayed_upload + sizes.relayed_download)


def largest_body(task: TaskSpec) -> int:
    """Return the largest message between the servers: a share or a model, each in one body."""
    return max(task.ring.element_bytes, _FLOAT) * numbers_of(task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Seconds of one core on this machine."""

    answer: float  # for one session
    add: float  # for one session
    prepare: float  # the others are for a round
    share: float
    step: float
    publish: float


def measure(task: TaskSpec, seconds: float) -> Stages:
    """Return how long the stages of a round of this task take."""
    sample = _sample(task)
    leaves = task.geometry.slots * task.geometry.leaves / (sample.geometry.slots * sample.geometry.leaves)
    larger = numbers_of(task) / numbers_of(sample)
    with tempfile.TemporaryDirectory(prefix="secemb-plan-") as folder:
        model = first_model(sample)
        round_ = RoundSpec(task=sample, number=1, model_version=0, model_digest=model.digest)
        start = perf_counter()
        evaluation = Evaluation.prepare(round_, 0, model.rows)  # once: a server has no old memory for it either
        prepare = perf_counter() - start
        answer, add = _kernel(round_, evaluation, seconds)
        share, step, publish = _after_the_seal(Path(folder), round_, model)
    return Stages(
        answer=answer * leaves,
        add=add * leaves,
        prepare=prepare * larger,
        share=share * larger,
        step=step * larger,
        publish=publish * larger,
    )


def _sample(task: TaskSpec) -> TaskSpec:
    """Return the task, or one with fewer items and the same rows."""
    if task.items <= _SAMPLE_ITEMS:
        return task
    smaller = build_task(
        name="sample",
        items=_SAMPLE_ITEMS,
        row_width=task.row_width,
        capacity=task.capacity,
        ring_bits=task.ring_bits,
        row_bits=task.row_bits,
        fraction_bits=task.fraction_bits,
        bound=task.bound,
        cohort=task.cohort,
        norm_bound=task.norm_bound,
    )
    return replace(smaller, dense_size=task.dense_size * _SAMPLE_ITEMS // task.items)


def _kernel(round_: RoundSpec, evaluation: Evaluation, seconds: float) -> tuple[float, float]:
    """Return the seconds per session: to answer its keys, and to add its update."""
    task, share = round_.task, Share.empty(round_)
    items = np.arange(task.capacity, dtype=np.int64)
    sessions = [DeviceSession(round_, items) for _ in range(min(_SAMPLE, BATCH, task.cohort))]
    uploads = [SessionBodies(one.session_id, one.keys[0], one.write_nothing()[0]) for one in sessions]
    keys = [KeysMessage(uploads[0].session_id, uploads[0].keys)]
    found = fastest({"answer": lambda: evaluation.answer(keys), "add": lambda: evaluation.add(uploads, share)}, seconds)
    return found["answer"], found["add"] / len(uploads)


def _after_the_seal(folder: Path, round_: RoundSpec, model: Model) -> tuple[float, ...]:
    """Return the seconds to store a share, to add two and take the optimiser's step, and to publish on both servers."""
    task = round_.task
    store, there = (ModelFiles(folder / name, task.task_id, Shape.of(task)) for name in ("server0", "server1"))
    store.save(model)
    found = []
    for number in range(_STEPS):
        round_ = replace(round_, number=number, model_version=number, model_digest=model.digest)
        times = [perf_counter()]
        share, shares = Share.empty(round_).encode(), ShareFiles(folder)
        digest = shares.save(round_.digest, bytes(32), share)
        times.append(perf_counter())
        own = shares.load(round_.digest, digest or b"")
        sha256_of(own)  # of the other server's
        model = take_step(store, round_, add_shares(round_, own, own), sessions=task.min_cohort).model
        times.append(perf_counter())
        sent = publication(model, store.load(model.version - 1), folder)
        hashlib.sha256(read_all(sent.body))
        there.save(model)
        times.append(perf_counter())
        found.append([end - start for start, end in pairwise(times)])
    return tuple(map(min, zip(*found[1:], strict=True)))  # the first step has no state to load


def fastest(candidates: Mapping[str, Work], seconds: float, turns: int = 2) -> dict[str, float]:
    """Return each candidate's fastest call over at least `turns` turns and about `seconds` in total."""
    best = dict.fromkeys(candidates, float("inf"))
    end, done = perf_counter() + seconds, 0
    while done < turns or perf_counter() < end:
        for name, work in candidates.items():
            best[name] = min(best[name], _turn(work))
        done += 1
    return best


def _turn(work: Work) -> float:
    """Call `work` for one turn, at least once, and return the seconds of the fastest call."""
    best, start = float("inf"), perf_counter()
    end = start + TURN_SECONDS
    while start < end:
        work()
        now = perf_counter()
        best, start = min(best, now - start), now
    return best
