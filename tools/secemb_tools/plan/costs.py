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
from secemb_party.prepared_rounds import kept_rounds
from secemb_party.storage import Model, ModelFiles, Shape, ShareFiles, first_model, read_all, sha256_of
from secemb_party.storage.publication import publication
from secemb_party.storage.retention import FEWEST
from secemb_party.storage.tensor_files import MAPPED
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
REQUESTS = 0.0025  # CPU seconds for the requests of a session, without the kernel: `make loadtest`
_PROCESS = 215_000_000  # Python, libraries, and freed blocks kept by the allocator
_RETURNED = 32 << 20  # bytes: smaller blocks are not returned to the system (secemb_party.http.listeners)
_UNRETURNED = 3  # arrays of the size of the table that are freed but kept, if they are smaller
_FLOAT = 4
_LENGTHS = 64  # bytes per row of the guard's arrays during a step
_MOMENTS = {"adam": 2, "lazy-adam": 2, "momentum": 1, "sgd": 0}
_SPARSE = ("lazy-adam", "sgd")  # optimisers that move only the rows of a round, without decay and noise
_COUNT = _NUMBER = 4  # bytes of the number of changed rows, and of each of their numbers
_KEPT_ROUNDS = 3  # of bodies and shares: the default of keep_bodies_rounds
_SESSION_IN_LISTS = 600  # bytes of one session in the lists that the servers exchange


def numbers_of(task: TaskSpec) -> int:
    """Return how many numbers the model has."""
    return task.items * task.row_width + task.dense_size


def _moments(task: TaskSpec) -> int:
    """Return how many numbers an optimiser keeps for one of the model, its full precision among them."""
    return _MOMENTS[task.optimiser] + (task.row_bits == HALF)


def memory_of_server0(task: TaskSpec) -> int:
    """Return the peak: the sum of the open round, or the optimiser's step with what small files need in memory."""
    numbers, moments = numbers_of(task), _moments(task)
    model, state = _read(_FLOAT * numbers), _read(moments * _FLOAT * numbers)
    stepping = 2 * model + 2 * state + _LENGTHS * task.items  # old and new; the lengths of all rows
    return _common(task) + max(sum_bytes(task), stepping)


def memory_of_server1(task: TaskSpec) -> int:
    """Return the peak: the sum of the open round, or a model that arrives."""
    return _common(task) + max(sum_bytes(task), 3 * _read(_FLOAT * numbers_of(task)))


def sum_bytes(task: TaskSpec) -> int:
    """Return the size of the sum. The model is mapped before there is a sum, while the round is prepared."""
    return max(task.ring.dtype.itemsize, _FLOAT) * numbers_of(task)


def _read(size: int) -> int:
    """Return how much memory a file of this size takes: small ones are read, large ones are mapped in blocks."""
    return size if size <= MAPPED else 0


def tagged_bytes(task: TaskSpec) -> int:
    """Return the size of the table from which a server answers."""
    return _FLOAT * task.items * (task.row_words + 1)


def _common(task: TaskSpec) -> int:
    tagged = tagged_bytes(task)
    leaves = _FLOAT * task.tables * task.bins * task.geometry.leaves
    sizes = Sizes.of(task)
    unreturned = _UNRETURNED * tagged if tagged < _RETURNED else 0
    kept = kept_rounds(_FLOAT * task.items * task.row_width)
    return _PROCESS + unreturned + kept * (tagged + leaves) + BATCH * (sizes.keys + max(sizes.update))


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
    transit = share_and_model(task)
    return models + shares + transit + (_KEPT_ROUNDS + 1) * stored_per_round(task)


def written_per_round(task: TaskSpec) -> int:
    """Return the bytes that server 0 writes in a full round: bodies, both shares, the version and the state."""
    return stored_per_round(task) + 2 * task.ring.element_bytes * numbers_of(task) + stored_per_version(task)


def share_and_model(task: TaskSpec) -> int:
    """Return the bytes of what a server is receiving from the other."""
    return max(task.ring.element_bytes * numbers_of(task), model_bytes(task))


def model_bytes(task: TaskSpec) -> int:
    """Return the bytes of a model on its way to server 1: the whole, or the rows that a full round may change."""
    whole = _FLOAT * numbers_of(task)
    if task.optimiser not in _SPARSE or task.privacy is not None:
        return whole
    rows = min(task.items, task.cohort * task.capacity)
    return min(whole, _COUNT + rows * (_NUMBER + _FLOAT * task.row_width) + _FLOAT * task.dense_size)


def peer_bytes(task: TaskSpec) -> int:
    """Return the most bytes that the servers exchange in a round: a share, a model and the lists of sessions."""
    return task.ring.element_bytes * numbers_of(task) + model_bytes(task) + _SESSION_IN_LISTS * task.cohort


def relayed_bytes(task: TaskSpec) -> int:
    """Return the additional bytes if devices send everything through server 0: forwarded messages, and answers."""
    sizes = Sizes.of(task)
    return task.cohort * (sizes.relayed_upload + sizes.relayed_download)


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
        optimiser=task.optimiser,
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
