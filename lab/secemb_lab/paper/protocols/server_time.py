"""The table of a server's time to aggregate the updates of 100 to 500 users: homomorphic encryption and SecEmb."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from time import process_time

import numpy as np

from secemb_lab.constructions import PathShared
from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.printed import printed, tables
from secemb_lab.paper.protocols.cases import Case, Device
from secemb_lab.paper.protocols.encrypted_sum import MISSING, SLOTS, Users, tenseal_is_here
from secemb_party.evaluation import Evaluation, KeysMessage, SessionBodies, Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared import row_access
from secemb_shared.dpf import CHECK_KEY_BYTES, default_backend
from secemb_tools.catalogues import CATALOGUES

Chunk = Callable[[], tuple[float, ...]]  # adds some users; returns the seconds of each row
LABEL = "tab:servercost"
STEP, STEPS = 100, 5  # users added at a time
_DISTINCT = 4  # devices whose messages are used repeatedly
_SAMPLE = 200  # numbers that each have their own ciphertext
_PACKED, _SINGLE = "HE (CKKS), packed", "HE (CKKS), a number in each ciphertext"
_ALONE = ", adding alone"
_DIRECT, _BINNED = "SecEmb, direct layout", "SecEmb, binned"
_HE = (_PACKED, f"{_PACKED}{_ALONE}", _SINGLE, f"{_SINGLE}{_ALONE}")
_NOTES = {
    _PACKED: f"A ciphertext holds {SLOTS:,} numbers, and adding two adds all of them; the paper's time is that of "
    "one ciphertext for each number, as the row below shows.",
    _SINGLE: "Measured with a sample of the numbers and multiplied; the paper does not say which library it used, nor "
    "whether reading the ciphertexts is in its time.",
    _DIRECT: "A different program and processor, and the check of keys needs twice as many hashes of leaves.",
    _BINNED: "This includes the check of keys and the fingerprint of all leaves.",
}
_RATIO_NOTE = (
    "The paper's time for encryption is that of one ciphertext for each number, which wastes all but one of its slots."
)


@table("server", title="Server computation", night_seconds=150)
def server(settings: Settings, progress: Progress) -> Body:
    """Time one server with the updates of up to 500 users on ML1M."""
    case = Case("mf", CATALOGUES[1])
    step = 4 if settings.quick else STEP
    ways: dict[tuple[str, ...], Chunk] = {(_DIRECT,): _direct(case, step), (_BINNED,): _binned(case, step)}
    if tenseal_is_here():
        ways |= {_HE[:2]: _packed(case, step), _HE[2:]: _single(case, step)}
    found: dict[str, list[float] | None] = dict.fromkeys((*_HE, _DIRECT, _BINNED))
    for number, (names, add_some) in enumerate(ways.items()):
        seconds = []
        for done in range(STEPS):
            progress((number + done / STEPS) / len(ways), names[0])
            seconds.append(add_some())
        for name, own in zip(names, zip(*seconds, strict=True), strict=True):
            found[name] = [one / 60 * STEP / step for one in accumulate(own)]
    return Body(
        caption="Minutes of processor time in which one server aggregates the updates of this many users: MF on ML1M. "
        "HE reads every user's ciphertexts and adds them. SecEmb answers the reads and adds the updates; binned is the "
        "product's own code with all its checks.",
        cells=[*_cells(found), *_ratios(found)],
    )


def _cells(found: dict[str, list[float] | None]) -> Iterator[Cell]:
    for name, minutes in found.items():
        row = "SecEmb" if name.startswith("SecEmb") else "HE (CKKS)"
        for place, users in enumerate(tables()[LABEL]["columns"]):
            yield Cell(
                row=name,
                column=users,
                ours=None if minutes is None else minutes[place],
                paper=printed(LABEL, row, users),
                unit="min",
                better="less" if row == "SecEmb" else "",
                note=MISSING if minutes is None else _NOTES[name.removesuffix(_ALONE)],
            )


def _ratios(found: dict[str, list[float] | None]) -> Iterator[Cell]:
    for above, below in ((_PACKED, _DIRECT), (_PACKED, _BINNED), (_SINGLE, _DIRECT), (_SINGLE, _BINNED)):
        high, low = found[above], found[below]
        for place, users in enumerate(tables()[LABEL]["columns"]):
            theirs = float(printed(LABEL, "HE (CKKS)", users) or 0) / float(printed(LABEL, "SecEmb", users) or 1)
            yield Cell(
                row=f"{above} / {below}",
                column=users,
                ours=None if high is None or low is None else high[place] / low[place],
                paper=theirs,
                better="more",
                note=MISSING if high is None else _RATIO_NOTE,
            )


def _direct(case: Case, step: int) -> Chunk:
    round_ = case.round(binned=False, norm_bound=0)
    device, scheme = Device(round_, PathShared), PathShared(round_, default_backend())
    received = [device.received(1) for _ in range(_DISTINCT)]
    tagged, sums = row_access.tag_rows(round_, _rows(case)), row_access.empty_sums(round_)

    def add_some() -> tuple[float, ...]:
        begin = process_time()
        for number in range(step):
            one = received[number % _DISTINCT]
            scheme.answer(1, one.session_id, one.request, tagged)
            scheme.add(1, [one], sums)
        return (process_time() - begin,)

    return add_some


def _binned(case: Case, step: int) -> Chunk:
    round_ = case.round(binned=True)
    evaluation = Evaluation.prepare(round_, 1, _rows(case), check_key=bytes(CHECK_KEY_BYTES))
    sessions = [_session(case) for _ in range(_DISTINCT)]
    bodies = [sessions[number % _DISTINCT] for number in range(step)]
    share = Share.empty(round_)

    def add_some() -> tuple[float, ...]:
        begin = process_time()
        evaluation.accept([KeysMessage(one.session_id, one.keys) for one in bodies])
        evaluation.add(bodies, share)
        return (process_time() - begin,)

    return add_some


def _session(case: Case) -> SessionBodies:
    round_ = case.round(binned=True)
    items = np.linspace(0, case.catalogue.items - 1, case.catalogue.capacity).astype(np.int64)
    session = DeviceSession(round_, items)
    updates = session.write(items, np.full((items.size, case.model.row_width), 2.0**-10), np.zeros(0))
    return SessionBodies(session.session_id, session.keys[1], updates[1])


def _rows(case: Case) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    shape = case.catalogue.items, case.model.row_width
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _packed(case: Case, step: int) -> Chunk:
    return _encrypted(case.numbers, SLOTS, step, 1.0)


def _single(case: Case, step: int) -> Chunk:
    users = max(1, step // 20)
    return _encrypted(_SAMPLE, 1, users, case.numbers / _SAMPLE * step / users)


def _encrypted(numbers: int, slots: int, step: int, scale: float) -> Chunk:
    users = Users()
    server_ = users.server()
    update: Sequence[bytes] = users.encrypt(np.linspace(-1, 1, numbers), slots=slots)

    def add_some() -> tuple[float, ...]:
        reading = adding = 0.0
        for _ in range(step):
            begin = process_time()
            vectors = server_.read(update)
            middle = process_time()
            server_.add(vectors)
            reading, adding = reading + middle - begin, adding + process_time() - middle
        return (reading + adding) * scale, adding * scale

    return add_some
