"""The paper's table of utility: five sets, trained with SecEmb and with compressors of updates, a table for a model."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from secemb_lab.paper.compression.full_shares import SecureFedRec
from secemb_lab.paper.compression.quantisers import TernQuant
from secemb_lab.paper.compression.rating_case import FOLDERS, RatingCase
from secemb_lab.paper.compression.reductions import (
    METHODS,
    MODELS,
    SECEMB,
    rank_of,
    reduction,
    round_of,
    title_of,
)
from secemb_lab.paper.compression.stored_cases import Figures, finish
from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, Value, table
from secemb_lab.paper.printed import printed, tables

LABEL = "tab:utility"
# Of a full run of ML100K and ML1M on two cores.
NIGHT_SECONDS = {"mf": 500.0, "ncf": 1100.0, "fm": 1900.0, "deepfm": 5800.0}
BIASES = "biases alone"
_CAPTION = """\
RMSE on a random fifth of the ratings, {seeds}, and the reduction ratio of the
upload. All methods share everything but what becomes of a device's rows: split, first weights, cohorts of 100,
fixed point, and this project's recipe of training, with the paper's vectors, ranks and m'. SecEmb trains with at most
m' of a person's items in a round; the others send something about every item, and leave none out. Secure FedRec loses
nothing: beside SecEmb it shows what m' costs, beside the compressors what they cost. Ratios count messages that were
encoded: floats before and after compression, and two explicit shares of the whole update beside SecEmb, which sends one
share of the dense part as a seed. As in the paper, no compressor is charged for the room that secret shares of its
message would need, or for what cannot be added at all (see the errors below). "Biases alone" is a model without
embeddings.
"""
_RATIOS = {
    TernQuant.name: "The paper counts four bits for a number that is minus one, zero or one; five of them fit into "
    "a byte.",
    SECEMB: "The layout of this project, and the proof that an update is short, result in a different upload than "
    "the paper's; FM on ML100K is 0.18 MB in one of the paper's tables and 0.22 MB in another, which gives 4.2.",
}
_LENGTH = "The length of a message follows from the paper's sizes, which do not give its ratio."
_RECIPE = (
    "Both are trained with this project's recipe, not the paper's; only the distance to SecEmb here is comparable."
)
_MISSING = "The set is not in the folder of sets; put it into {folder} there, and run the table again."
_QUICK = "This was a short run on made-up data, which only shows that it works."


def make(model: str, settings: Settings, progress: Progress) -> Body:
    """Train every case of a model that has its set, and compare."""
    cases = list(cases_of(model, settings))
    found = dict(zip(cases, finish(cases, settings.folder, progress), strict=True))
    cells = [cell for catalogue in FOLDERS for cell in _cells(settings, model, catalogue, found)]
    return Body(caption=" ".join(_CAPTION.format(seeds=_seeds(settings.seeds)).split()), cells=cells)


def cases_of(model: str, settings: Settings) -> Iterator[RatingCase]:
    """Yield what is to be trained, set by set."""
    if settings.quick:
        if model == MODELS[0]:  # the others need torch, which takes seconds to import
            yield from (RatingCase(catalogue="ML100K", model=model, method=method, seed=1) for method in METHODS)
        return
    for catalogue, folder in FOLDERS.items():
        if (path := settings.data / folder).is_dir():
            for seed in range(1, settings.seeds + 1):
                for method in METHODS:
                    yield RatingCase(catalogue=catalogue, model=model, method=method, seed=seed, path=path)


for name, seconds in NIGHT_SECONDS.items():
    title = f"RMSE and reduction ratio: {title_of(name)}"
    table(f"utility-{name}", title=title, night_seconds=seconds)(partial(make, name))


def _cells(settings: Settings, model: str, catalogue: str, found: dict[RatingCase, Figures]) -> Iterator[Cell]:
    """Yield error and ratio of each method, followed by the biases alone."""
    own = [(case, one) for case, one in found.items() if (case.model, case.catalogue) == (model, catalogue)]
    for method in METHODS:
        row, errors = f"{title_of(model)} / {method}", [one["rmse"] for case, one in own if case.method == method]
        yield Cell(
            row=row,
            column=f"{catalogue} RMSE",
            ours=fmean(errors) if errors else None,
            paper=_printed(row, f"{catalogue} RMSE"),
            better="less" if method == SECEMB else "",
            spread=stdev(errors) if len(errors) > 1 else None,
            note=_error_note(settings, catalogue, measured=bool(errors)),
        )
        if method != SecureFedRec.name:
            yield Cell(
                row=row,
                column=f"{catalogue} R.R.",
                ours=reduction(method, round_of(model, catalogue), rank=rank_of(model, catalogue)),
                paper=_printed(row, f"{catalogue} R.R."),
                better="more" if method == SECEMB else "",
                note=_RATIOS.get(method, _LENGTH),
            )
    biases = [one["biases"] for case, one in own if case.method == SECEMB]
    yield Cell(
        row=f"{title_of(model)} / {BIASES}",
        column=f"{catalogue} RMSE",
        ours=fmean(biases) if biases else None,
        note=_error_note(settings, catalogue, measured=bool(biases)),
    )


def _seeds(count: int) -> str:
    return "of one seed" if count == 1 else f"mean and standard deviation over {count} seeds"


def _printed(row: str, column: str) -> Value:
    return printed(LABEL, row, column) if row in tables()[LABEL]["rows"] else None


def _error_note(settings: Settings, catalogue: str, *, measured: bool) -> str:
    if settings.quick:
        return _QUICK
    return _RECIPE if measured else _MISSING.format(folder=Path(FOLDERS[catalogue]))
