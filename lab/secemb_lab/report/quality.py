"""`make quality`: recommendations on every available public set, compared with baselines and published figures.

Each run is a separate job, as many at a time as there are cores. Files are written after each.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

from secemb_lab.report.published import BAR_COHORT, BARS, REPORTED
from secemb_lab.report.quality_data import ALL, PEOPLE, RATINGS, Source
from secemb_lab.report.quality_file import FILE
from secemb_lab.report.quality_goals import Quality
from secemb_lab.report.quality_rankings import (
    BaselineCase,
    BaselineRun,
    RankingCase,
    RankingRun,
    measure_baselines_case,
    measure_ranking_case,
)
from secemb_lab.report.quality_ratings import RatingCase, RatingRun, measure_case
from secemb_shared.messages.spec import BPR, SOFTMAX
from secemb_tools import output
from secemb_tools.errors import OperationError

PARTS = ("ratings", "models", "rankings")
SEEDS = (1, 2, 3)
RATED = {"ml-100k": "ML100K", "ml-1m": "ML1M"}  # folder, and the name of the set in published figures
CHOSEN = {"amazon-video-games": "leave-last-out", "gowalla": "given"}  # folder, and how it is split
SAMPLES = ((ALL, 1.0), (RATINGS, 0.2), (RATINGS, 0.05), (PEOPLE, 0.2), (PEOPLE, 0.05))
# Rounds of private runs that do not go to the end: one for each set and loss is long, the others show that it holds
# for other seeds too.
LONG_PREFIX, SHORT_PREFIX = 50, 10

Case: TypeAlias = RatingCase | RankingCase | BaselineCase
Found: TypeAlias = RatingRun | RankingRun | list[BaselineRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityOptions:
    """What to measure."""

    data: Path  # a folder with the sets
    parts: Sequence[str] = PARTS
    quick: bool = False  # synthetic data, few rounds
    processes: int = 1
    out: Path = Path("build/quality.json")
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A case and the part of the report that it is for."""

    part: str
    case: Case


def run(options: QualityOptions) -> int:
    """Measure, write figures, page and plots, print the goals; return 1 if one was missed."""
    begin, jobs = perf_counter(), jobs_of(options)
    before = _kept(options)
    found = before
    for done in _measured(jobs, options.processes):
        found = _together(before, jobs, done, seconds=perf_counter() - begin)
        FILE.write(options.out, found)
        last = list(done)[-1]
        output.note(f"{len(done)} of {len(jobs)}, {found.seconds / 60:.1f} min: {jobs[last].case}: {_say(done[last])}")
    return FILE.show(options.out, found, as_json=options.as_json)


def _kept(options: QualityOptions) -> Quality:
    """Return an earlier run's measurements of the parts that are not measured now."""
    fresh = Quality(quick=options.quick, processes=options.processes)
    earlier = None if set(options.parts) == set(PARTS) else FILE.read(options.out)
    if earlier is None or earlier.quick != options.quick:
        return fresh
    keeps_rankings = "rankings" not in options.parts
    return replace(
        earlier,
        ratings=[] if "ratings" in options.parts else earlier.ratings,
        models=[] if "models" in options.parts else earlier.models,
        rankings=earlier.rankings if keeps_rankings else [],
        baselines=earlier.baselines if keeps_rankings else [],
    )


def _measured(jobs: Sequence[Job], processes: int) -> Iterator[dict[int, Found]]:
    """Yield what has been found so far, by job, each time that one has ended; the newest stands last."""
    done: dict[int, Found] = {}
    if processes == 1:
        for number, job in enumerate(jobs):
            done[number] = measure(job.case)
            yield done
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        # The last are the longest: they begin first, so that no core is idle at the end.
        places = reversed(range(len(jobs)))
        waiting: dict[Future[Found], int] = {pool.submit(measure, jobs[place].case): place for place in places}
        try:
            for one in as_completed(waiting):
                done[waiting[one]] = one.result()
                yield done
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after an error the remaining jobs are useless


def measure(case: Case) -> Found:
    """Return the figures of a case."""
    if isinstance(case, RatingCase):
        return measure_case(case)
    return measure_ranking_case(case) if isinstance(case, RankingCase) else measure_baselines_case(case)


def _together(before: Quality, jobs: Sequence[Job], done: dict[int, Found], *, seconds: float) -> Quality:
    """Return all figures, in the order of the jobs."""
    found = replace(
        before,
        seconds=before.seconds + seconds,
        ratings=[*before.ratings],
        models=[*before.models],
        rankings=[*before.rankings],
        baselines=[*before.baselines],
    )
    for number, one in sorted(done.items()):
        if isinstance(one, list):
            found.baselines.extend(one)
        elif isinstance(one, RankingRun):
            found.rankings.append(one)
        else:
            (found.models if jobs[number].part == "models" else found.ratings).append(one)
    return found


def _say(found: Found) -> str:
    if isinstance(found, list):
        return ", ".join(f"{one.name} {one.recall.value:.4f}" for one in found)
    if isinstance(found, RankingRun):
        return f"recall {found.recall.value:.4f}"
    return f"RMSE {found.rmse.value:.4f}, biases {found.biases:.4f}"


def jobs_of(options: QualityOptions) -> list[Job]:
    """Return the jobs: for each part, the available sets."""
    if unknown := set(options.parts) - set(PARTS):
        raise OperationError(f"unknown part {min(unknown)!r}; choose from {', '.join(PARTS)}")
    makers: dict[str, Callable[[Path], Iterator[Case]]] = (
        {"ratings": _quick_ratings, "models": _quick_models, "rankings": _quick_rankings}
        if options.quick
        else {"ratings": _ratings, "models": _models, "rankings": _rankings}
    )
    parts = [part for part in makers if part in options.parts]
    jobs = [Job(part=part, case=case) for part in parts for case in makers[part](options.data)]
    if not jobs:
        known = ", ".join([*RATED, *CHOSEN])
        raise OperationError(
            f"{options.data} contains none of the directories {known}; choose another directory with --data, or "
            "download a set with `secemb data fetch ml-100k`"
        )
    return jobs


def _prefix(seed: int, length: int | None = None) -> int | None:
    """Return how many rounds are run privately too: for the first seed this many or all, for others a few."""
    return length if seed == SEEDS[0] else SHORT_PREFIX


def _rankings(data: Path) -> Iterator[Case]:
    if (data / "ml-100k").is_dir():
        source, how = Source(path=data / "ml-100k", without_ratings=True), "per-user"
        yield BaselineCase(source=source, split=how, seed=1)
        for model, loss, seed in product(("mf", "fm", "ncf"), (BPR, SOFTMAX), SEEDS):
            case = RankingCase(source=source, split=how, model=model, loss=loss, seed=seed)
            yield replace(case, private_rounds=_prefix(seed))
    for folder, how in CHOSEN.items():
        if (data / folder).is_dir():
            source = Source(path=data / folder)
            yield BaselineCase(source=source, split=how, seed=1)
            for loss, seed in ((SOFTMAX, SEEDS[0]), *((BPR, seed) for seed in SEEDS)):
                case = RankingCase(source=source, split=how, loss=loss, seed=seed)
                yield replace(case, private_rounds=_prefix(seed, LONG_PREFIX))


def _models(data: Path) -> Iterator[Case]:
    for folder, label in RATED.items():
        for model in REPORTED if (data / folder).is_dir() else ():
            # One seed of the large set takes minutes of a core with models that need torch.
            for seed in SEEDS if folder == "ml-100k" or model == "mf" else SEEDS[:1]:
                yield RatingCase(
                    source=Source(path=data / folder),
                    model=model,
                    rounds=BARS[label][model][0],
                    cohort=BAR_COHORT,
                    seed=seed,
                    private_rounds=_prefix(seed),
                )


def _ratings(data: Path) -> Iterator[Case]:
    for folder in RATED:
        for of, share in SAMPLES if (data / folder).is_dir() else ():
            for seed in SEEDS:
                source = Source(path=data / folder, of=of, share=share)
                yield RatingCase(source=source, seed=seed, private_rounds=_prefix(seed))


def _quick_rankings(_: Path) -> Iterator[Case]:
    source = Source(without_ratings=True)
    yield BaselineCase(source=source, split="per-user", seed=1, epochs=2)
    for model, loss in (("mf", BPR), ("mf", SOFTMAX), ("fm", SOFTMAX)):
        yield RankingCase(source=source, split="per-user", model=model, loss=loss, seed=1, rounds=6, private_rounds=2)


def _quick_models(_: Path) -> Iterator[Case]:
    for model in REPORTED:
        yield RatingCase(source=Source(), model=model, seed=1, rounds=3, cohort=20, private_rounds=2)


def _quick_ratings(_: Path) -> Iterator[Case]:
    for of, share in ((ALL, 1.0), (PEOPLE, 0.5)):
        for seed in SEEDS[:2]:
            yield RatingCase(source=Source(of=of, share=share), seed=seed, private_rounds=20 if seed == 1 else 2)
