"""Reduction ratios of uploads: the size of the whole update divided by that of a method's message."""

from functools import cache

from secemb_lab.bench import device_models
from secemb_lab.paper.compression.compressor import FLOAT_BYTES, Compressor
from secemb_lab.paper.compression.full_shares import SecureFedRec
from secemb_lab.paper.compression.low_rank import CoLR, Svd
from secemb_lab.paper.compression.quantisers import Bit8Quant, TernQuant
from secemb_lab.paper.printed import tables
from secemb_sdk.models import Model, registry
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.codec import Sizes
from secemb_tools.catalogues import CATALOGUES, PaperCatalogue
from secemb_tools.specification import build_task

SECEMB = "SecEmb"  # no compressor: rows arrive unchanged
COMPRESSORS = (Bit8Quant.name, TernQuant.name, Svd.name, CoLR.name)  # in the order of the paper's tables
METHODS = (*COMPRESSORS, SecureFedRec.name, SECEMB)
BY_NAME = {one.name: one for one in CATALOGUES}
MODELS = ("mf", "ncf", "fm", "deepfm")


def compressor_of(method: str, *, rank: int) -> Compressor | None:
    """Return a method's compressor; SecEmb has none."""
    plain: dict[str, type[Bit8Quant | TernQuant | SecureFedRec]] = {
        one.name: one for one in (Bit8Quant, TernQuant, SecureFedRec)
    }
    ranked: dict[str, type[Svd | CoLR]] = {one.name: one for one in (Svd, CoLR)}
    if method in ranked:
        return ranked[method](rank)
    return None if method == SECEMB else plain[method]()


def rank_of(model: str, catalogue: str) -> int:
    """Return the rank in the paper's table of ranks."""
    table = tables()["tab:rank"]
    return int(table["rows"][title_of(model)][table["columns"].index(catalogue)])


def title_of(model: str) -> str:
    """Return a model's name in the paper's tables."""
    return registry.find(model).title


@cache
def round_of(model: str, catalogue: str) -> RoundSpec:
    """Return a round with a model on one of the paper's catalogues, all sizes as there."""
    return sized(device_models.make(model, catalogue), BY_NAME[catalogue])


def sized(model: Model, catalogue: PaperCatalogue) -> RoundSpec:
    """Return a round with a model's sizes and a catalogue's."""
    task = build_task(
        name=catalogue.name,
        items=catalogue.items,
        row_width=model.row_width,
        dense_size=model.dense_size,
        capacity=catalogue.capacity,
        fraction_bits=16,
        bound=2**20,
        cohort=100,
    )
    return RoundSpec(task=task, number=1, model_version=1, model_digest=bytes(32))


def reduction(method: str, round_: RoundSpec, *, rank: int) -> float:
    """Return the ratio: numbers before and after compression, or two shares of them and SecEmb's messages."""
    task, one = round_.task, compressor_of(method, rank=rank)
    numbers = task.items * task.row_width + task.dense_size
    if one is None:
        return 2 * task.ring.element_bytes * numbers / Sizes.of(task).upload
    if isinstance(one, SecureFedRec):
        return 1.0  # the reference for the others
    return FLOAT_BYTES * numbers / (one.size(round_) + FLOAT_BYTES * task.dense_size)
