"""The paper's table of sequences: Caser and SASRec on two sets, trained with SecEmb and with compressors of updates."""

from collections.abc import Iterator
from functools import cache, partial
from statistics import fmean

from secemb_lab.paper.compression.full_shares import SecureFedRec
from secemb_lab.paper.compression.quantisers import TernQuant
from secemb_lab.paper.compression.reductions import METHODS, SECEMB, reduction, sized, title_of
from secemb_lab.paper.compression.sequence_case import RANKS, SETS, SequenceCase
from secemb_lab.paper.compression.stored_cases import Figures, finish
from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, Value, table
from secemb_lab.paper.printed import printed, tables
from secemb_sdk.models import registry
from secemb_sdk.models.interface import follows
from secemb_shared.messages import RoundSpec
from secemb_tools.catalogues import AMAZON, CATALOGUES, PaperCatalogue

LABEL = "tab:seq"
POPULARITY = "popularity"
NIGHT_SECONDS = {"caser": 2400.0, "sasrec": 2100.0}  # of a full run of both sets on two cores
_COLUMNS = {"HR@10": "hit_rate", "NDCG@10": "ndcg"}
_CAPTION = """\
Everybody's last event, ranked among 100 strangers drawn uniformly, after 600 rounds of 100 devices by this project's
recipe, with the paper's ranks. The paper does not say among what its items are ranked. Popularity needs no model. The
columns Amazon were trained on the video games alone (its ratios are for all 9,267,503 items): a simulation of all of
Amazon does not fit into a night. m' is what one window of the model reads, for every method.
"""
_RANKED = {
    "ML1M": "The paper's figures are close to popularity, and it does not say among which items it ranks.",
    "Amazon": "The set is another one: the paper trains on all of Amazon, this table on its video games.",
}
_RATIO = (
    "The paper gives neither m' nor the sizes of rows and dense part for its sequence models; here they are those of "
    "this project's models."
)
_DIGITS = "The paper counts four bits for a number with three values; five of them fit into a byte."
_MISSING = "The set {folder} is not in the folder of sets; put it there, and run the table again."
_QUICK = "This was a short run on made-up data, which only shows that it works."


def make(model: str, settings: Settings, progress: Progress) -> Body:
    """Train every case of a model that has its set, and compare."""
    cases = list(cases_of(model, settings))
    found = dict(zip(cases, finish(cases, settings.folder, progress), strict=True))
    cells = [cell for catalogue in SETS for cell in _cells(settings, model, catalogue, found)]
    return Body(caption=" ".join(_CAPTION.split()), cells=cells)


def cases_of(model: str, settings: Settings) -> Iterator[SequenceCase]:
    """Yield the cases to be trained: as in the paper, each once."""
    if settings.quick:
        if model == next(iter(NIGHT_SECONDS)):
            yield from (SequenceCase(catalogue="ML1M", model=model, method=method) for method in METHODS)
        return
    for catalogue, folder in SETS.items():
        if (path := settings.data / folder).is_dir():
            for method in METHODS:
                yield SequenceCase(catalogue=catalogue, model=model, method=method, path=path)


for name, seconds in NIGHT_SECONDS.items():
    title = f"Sequences, HR@10, NDCG@10 and reduction ratio: {title_of(name)}"
    table(f"sequences-{name}", title=title, night_seconds=seconds)(partial(make, name))


@cache
def round_of(model: str, catalogue: str) -> RoundSpec:
    """Return a round with a model of events on one of the two catalogues; m' is the number of items in its window."""
    made = registry.find(model).make()
    sizes = AMAZON if catalogue == "Amazon" else next(one for one in CATALOGUES if one.name == catalogue)
    room = made.room if follows(made) else sizes.capacity
    return sized(made, PaperCatalogue(sizes.name, sizes.items, room))


def _cells(settings: Settings, model: str, catalogue: str, found: dict[SequenceCase, Figures]) -> Iterator[Cell]:
    own = {case.method: one for case, one in found.items() if case.catalogue == catalogue}
    for method in METHODS:
        row = f"{title_of(model)} / {method}"
        for title, figure in _COLUMNS.items():
            yield Cell(
                row=row,
                column=f"{catalogue} {title}",
                ours=own.get(method, {}).get(f"model {figure}"),
                paper=_printed(row, f"{catalogue} {title}"),
                better="more" if method == SECEMB else "",
                note=_note(settings, catalogue, measured=method in own),
            )
        if method != SecureFedRec.name:
            yield Cell(
                row=row,
                column=f"{catalogue} R.R.",
                ours=reduction(method, round_of(model, catalogue), rank=RANKS[catalogue]),
                paper=_printed(row, f"{catalogue} R.R."),
                better="more" if method == SECEMB else "",
                note=_DIGITS if method == TernQuant.name else _RATIO,
            )
    for title, figure in _COLUMNS.items():
        values = [one[f"{POPULARITY} {figure}"] for one in own.values()]
        yield Cell(
            row=f"{title_of(model)} / {POPULARITY}",
            column=f"{catalogue} {title}",
            ours=fmean(values) if values else None,
            note=_note(settings, catalogue, measured=bool(values)),
        )


def _printed(row: str, column: str) -> Value:
    return printed(LABEL, row, column) if row in tables()[LABEL]["rows"] else None


def _note(settings: Settings, catalogue: str, *, measured: bool) -> str:
    if settings.quick:
        return _QUICK
    return _RANKED[catalogue] if measured else _MISSING.format(folder=SETS[catalogue])
