"""The output of the laboratory's commands with `--json`, by command."""

from typing import Any

from typing_extensions import TypedDict

from secemb_lab.attack.stage import Figures as AttackFigures
from secemb_lab.bench.catalogues import Figure as CatalogueFigure
from secemb_lab.bench.devices import Figure as DeviceFigure
from secemb_lab.loadtest.memory import MemoryRun
from secemb_lab.loadtest.not_now import NotNowCost
from secemb_lab.pacing.scenarios import Figures as FleetFigures
from secemb_lab.report.dp_runs import Plan
from secemb_lab.report.quality_rankings import BaselineRun, RankingRun
from secemb_lab.report.quality_ratings import RatingRun
from secemb_lab.report.sequences_cost import CatalogueSize
from secemb_lab.report.sequences_run import SequenceRun


class Machine(TypedDict):
    """The machine that was measured."""

    processor: str
    cores: str
    python: str
    numpy: str
    cryptography: str
    kernel: str


class Operations(TypedDict):
    """The kernel's operations in nanoseconds, for one backend and shape."""

    backend: str
    shape: str
    depth: int
    block_ns: float
    ns: dict[str, float]
    tree_blocks: float
    check_share: float  # time that the check adds to a session
    convert_share: float


class Speedup(TypedDict):
    """The speed-up of two threads."""

    shape: str
    work: str
    speedup: float


class Kernel(TypedDict):
    """The kernel alone."""

    operations: list[Operations]
    threads: list[Speedup]


class Noise(TypedDict):
    """Seconds for ten million numbers."""

    backend: str
    seconds: float


class Sharing(TypedDict):
    """Microseconds of a device's cryptography."""

    catalogue: str
    backend: str
    place_us: float
    secemb_us: float
    full_us: float
    blocks_ratio: float
    ratio: float


class Footprint(TypedDict):
    """The footprint of the SDK."""

    import_cpu_seconds: float
    imports_torch: bool
    device_bytes: int
    installed_bytes: dict[str, int]


class Bar(TypedDict):
    """A goal and its measurement."""

    name: str
    measured: float
    goal: float
    more: bool
    reached: bool


class Bench(TypedDict):
    """`bench`."""

    machine: Machine
    kernel: Kernel
    noise: list[Noise]
    sharing: list[Sharing]
    catalogues: list[CatalogueFigure]
    devices: list[DeviceFigure]
    footprint: Footprint
    bars: list[Bar]


class Percentiles(TypedDict):
    """Milliseconds."""

    p50: float
    p95: float
    p99: float


class ServerLoad(TypedDict):
    """The cost of a session for one server."""

    cpu_ms_a_session: float
    kernel_ms_a_session: float
    beyond_kernel_ms_a_session: float
    beyond_kernel_in_bare_requests: float
    kernel_ms_by_operation: dict[str, float]
    kernel_share: float
    memory_mb: float
    loop_lag_ms: float
    seal_to_publish_seconds: float
    seal_to_publish_in_kernel_times: float


class Load(TypedDict):
    """One catalogue with one transport."""

    catalogue: str
    transport: str
    devices: int
    sessions: int
    failed: int
    bytes_up_per_device: int
    bytes_down_per_device: int
    joins_a_session: float
    sessions_per_second: float
    not_now: NotNowCost
    bare_request_ms: float
    generator_cpu_ms: float
    keys_ms: Percentiles
    update_ms: Percentiles
    servers: list[ServerLoad]


class Loadtest(TypedDict):
    """`loadtest`."""

    machine: Machine
    runs: list[Load]


class Tls(TypedDict):
    """Bytes up and down of a round over TLS, on a kept connection and on a new one."""

    kept: list[int]
    reconnected: list[int]


class Moved(TypedDict):
    """Bytes up and down of a device."""

    once: list[int]
    first: list[int]
    later: list[int]
    messages: list[int]
    requests: dict[str, list[int]]
    tls: Tls


class WireBytes(TypedDict):
    """The bytes of one catalogue."""

    catalogue: str
    limit: list[int]
    direct: Moved
    relayed: Moved


class Median(TypedDict):
    """Milliseconds."""

    p50: float
    p95: float


class Timed(TypedDict):
    """The time and cost of reads and updates."""

    keys_ms: Median
    update_ms: Median
    cpu_ms_a_session: list[float]
    peer_bytes_a_session: list[float]


WireReads = TypedDict(
    "WireReads",
    {
        "catalogue": str,
        "milliseconds_between_servers": float,
        "direct": Timed,
        "relayed": Timed,
        "direct, 16 at once": Timed,
        "relayed, 16 at once": Timed,
    },
)


class Wire(TypedDict):
    """`wire`."""

    machine: Machine
    bytes: list[WireBytes]
    reads: list[WireReads]


class Vectors(TypedDict):
    """`vectors`."""

    directory: str
    files: list[str]


class NoisyRun(TypedDict):
    """One point of the report on differential privacy."""

    plan: Plan
    multiplier: float | None
    spent: float | None
    spent_known: float | None
    rmse: float
    best: float


class DpReport(TypedDict):
    """`report dp`."""

    ratings: str
    seed: int
    bias_only_rmse: float
    runs: list[NoisyRun]


class Memory(TypedDict):
    """`memory`."""

    machine: Machine
    runs: list[MemoryRun]


class Pacing(TypedDict):
    """`pacing`."""

    quick: bool
    joins_per_second: float
    runs: list[FleetFigures]
    goals: list[Bar]


class AttackReport(TypedDict):
    """`attack`."""

    quick: bool
    machine: Machine
    attacks: list[AttackFigures]
    goals: list[Bar]


class ScaleSection(TypedDict):
    """A section of the report on scale: its table, its goals, and the figures behind them."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    goals: list[Bar]
    figures: list[dict[str, Any]]
    remarks: list[str]


class ScaleReport(TypedDict):
    """`scale`."""

    quick: bool
    machine: Machine
    sections: list[ScaleSection]
    goals: list[Bar]


class QualityReport(TypedDict):
    """`quality`."""

    quick: bool
    processes: int
    seconds: float
    ratings: list[RatingRun]
    models: list[RatingRun]
    rankings: list[RankingRun]
    baselines: list[BaselineRun]
    goals: list[Bar]


class SequenceReport(TypedDict):
    """`sequences`."""

    quick: bool
    seconds: float
    runs: list[SequenceRun]
    sizes: list[CatalogueSize]
    goals: list[Bar]


class PaperCell(TypedDict):
    """A cell of a table of the paper."""

    row: str
    column: str
    ours: float | str | None
    paper: float | str | None
    unit: str
    better: str
    spread: float | None
    note: str
    ratio: float | None
    verdict: str


class PaperPlot(TypedDict):
    """A figure of the paper."""

    title: str
    across: str
    lines: dict[str, list[tuple[float, float]]]
    doubling: bool


class PaperTable(TypedDict):
    """A table of the paper."""

    name: str
    title: str
    caption: str
    cells: list[PaperCell]
    plots: list[PaperPlot]
    seconds: float


class PaperMeasured(TypedDict):
    """A table, and where it was measured."""

    table: PaperTable
    machine: Machine
    quick: bool
    seeds: int


class Paper(TypedDict):
    """`paper`."""

    tables: list[PaperMeasured]


RESULTS: dict[str, Any] = {
    "attack": AttackReport,
    "bench": Bench,
    "loadtest": Loadtest,
    "memory": Memory,
    "pacing": Pacing,
    "paper": Paper,
    "quality": QualityReport,
    "report dp": DpReport,
    "scale": ScaleReport,
    "sequences": SequenceReport,
    "vectors": Vectors,
    "wire": Wire,
}
