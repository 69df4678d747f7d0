"""The task of a measurement: one of the paper's catalogues, with rounds that wait for everybody."""

from secemb_shared.messages import TaskSpec
from secemb_tools.bench.catalogues import WIDTH, Catalogue
from secemb_tools.operate.task_files import Wishes, make_task


def task_for(catalogue: Catalogue, *, cohort: int) -> TaskSpec:
    """Return the task that both services are given."""
    wishes = Wishes(
        name=catalogue.name,
        items=catalogue.items,
        width=WIDTH,
        dense_size=0,
        capacity=catalogue.capacity,
        layout="binned",
        loss=1e-6,
        ring_bits=32,
        fraction_bits=16,
        clip=16,
        cohort=cohort,
        min_cohort=2,
        rounds=1000,
        join_seconds=60,
        upload_seconds=300,
        optimiser="adam",
        row_rate="0.025",
        dense_rate="0.001",
        seed=0,
        initial_scale="0.01",
    )
    return make_task(wishes)
