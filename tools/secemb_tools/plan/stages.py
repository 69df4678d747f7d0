"""How long each stage of a round takes: the servers' own functions, run here on a small catalogue and scaled."""

import hashlib
import tempfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

from secemb_party.evaluation import BATCH, Evaluation, KeysMessage, SessionBodies, Share
from secemb_party.storage import Model, ModelFiles, Shape, ShareFiles, first_model
from secemb_sdk.round.session import DeviceSession
from secemb_server0.reconstruct import add_shares, next_model
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_tools.plan.resources import numbers_of
from secemb_tools.specification import build_task
from secemb_tools.stopwatch import fastest

_SAMPLE_ITEMS = 60_000  # of the catalogue that is measured: larger than the processor's caches, and quick
_STEPS = 3  # of the optimiser in the measurement
_SAMPLE = 8  # sessions that are added together in the measurement


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
        evaluation = Evaluation.prepare(round_, 0, model.rows)
        prepare = fastest({"prepare": lambda: Evaluation.prepare(round_, 0, model.rows)}, 0.0)["prepare"]
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
        fraction_bits=task.fraction_bits,
        bound=task.bound,
        cohort=task.cohort,
    )
    return replace(smaller, dense_size=task.dense_size * _SAMPLE_ITEMS // task.items)


def _kernel(round_: RoundSpec, evaluation: Evaluation, seconds: float) -> tuple[float, float]:
    """Return the seconds that one session costs: to answer its keys, and to add its update."""
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
        own = shares.load(round_.digest, digest)
        hashlib.sha256(share)  # of the other server's
        model = next_model(store, round_, add_shares(round_, own, share), sessions=task.min_cohort)
        times.append(perf_counter())
        body = store.load(model.version).encode()
        hashlib.sha256(body)  # by each server
        hashlib.sha256(body)
        there.save(Model.decode(task.task_id, model.version, Shape.of(task), body))
        times.append(perf_counter())
        found.append([end - start for start, end in pairwise(times)])
    return tuple(map(min, zip(*found[1:], strict=True)))  # the first step has no state to load
