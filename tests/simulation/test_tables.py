"""Copies of the published table: exact, resumable, the same on both servers, and used only if they are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.devices.carrier import Carrier, dense, published, taste_of, train
from tests.devices.scripted import flipped
from tests.simulation.catalogues import FORMATS, a_catalogue, encoded, get, model_of

from secemb_party.storage import Model
from secemb_sdk.errors import CopyError, RefusedError, UnavailableError
from secemb_sdk.home.records import Record
from secemb_sdk.recommend import sync as table_sync
from secemb_sdk.recommend.copy import Shelf, TableCopy
from secemb_sdk.recommend.rank import recommend
from secemb_sdk.round.join import Published
from secemb_sdk.steps import Answer, Lost, Request, Send, Steps, Work
from secemb_shared.messages.table import TableFormat

pytestmark = pytest.mark.asyncio


CHUNK = 700  # several pieces a copy


async def sync(carrier: Carrier, shelf: Shelf, format_: TableFormat, *, chunk: int = CHUNK) -> TableCopy:
    """Let a device fetch what is published now."""
    now = await published(carrier.pair)
    part = dense(carrier.pair, now.version)
    return await carrier.run(table_sync.sync(carrier.exchange(), shelf, now, dense=part, format_=format_, chunk=chunk))


def files(folder: Path) -> set[str]:
    return {path.name.split("-")[0] for path in folder.iterdir()}


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@FORMATS
async def test_a_device_follows_the_table_from_version_to_version(format_: TableFormat, tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        shelf = Shelf(tmp_path / "public", pair.task)
        received = []
        for version in range(3):
            carrier = Carrier(pair)
            copy = await sync(carrier, shelf, format_)
            assert copy.version == version
            assert copy.path.read_bytes() == encoded(pair, version, format_)
            assert np.array_equal(
                copy.rows(np.arange(150)), copy.shape.decode(copy.shape.encode(model_of(pair, version).rows))
            )
            received.append(carrier.received)
            await train(pair)
        assert max(received[1:]) < received[0] / 4, "only what changed is fetched"
        assert files(tmp_path / "public") == {"table"}


@FORMATS
async def test_a_copy_that_is_here_is_not_fetched_again(format_: TableFormat, tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        await sync(Carrier(pair), Shelf(tmp_path, pair.task), format_)
        carrier = Carrier(pair)
        copy = await sync(carrier, Shelf(tmp_path, pair.task), format_)
        assert (copy.version, carrier.sent) == (0, [])


async def test_a_device_that_was_away_for_long_fetches_everything(tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        shelf = Shelf(tmp_path, pair.task)
        await sync(Carrier(pair), shelf, TableFormat.INT8)
        await train(pair, 4)
        copy = await sync(Carrier(pair), shelf, TableFormat.INT8)
        assert copy.path.read_bytes() == encoded(pair, 4, TableFormat.INT8)


@FORMATS
@pytest.mark.parametrize("since", [False, True], ids=["full", "delta"])
async def test_a_download_goes_on_after_a_cut_at_any_byte(format_: TableFormat, since: bool, tmp_path: Path) -> None:
    async with a_catalogue(items=12, row_width=2, bins=4) as pair:
        shelf = Shelf(tmp_path, pair.task)
        if since:
            await sync(Carrier(pair), shelf, format_)
        await train(pair)
        now = await published(pair)
        what = f"table/{now.version}?format={format_}" + ("&since=0" if since else "")
        size = len((await get(pair, 0, what)).content)
        for cut in range(1, size):
            carrier = Carrier(pair, tamper=Losing(2))
            with pytest.raises(UnavailableError):
                await sync(carrier, shelf, format_, chunk=cut)  # the first piece comes, and nothing more
            assert (tmp_path / "part.bytes").stat().st_size == cut
            carrier = Carrier(pair)
            copy = await sync(carrier, shelf, format_, chunk=size)
            assert copy.path.read_bytes() == encoded(pair, now.version, format_)
            assert carrier.received == size - cut, "what is here is not fetched again"
            empty(tmp_path)
            if since:
                first = Published(0, model_of(pair, 0).digest)
                carrier = Carrier(pair)
                await carrier.run(
                    table_sync.sync(carrier.exchange(), shelf, first, dense=dense(pair, 0), format_=format_)
                )


class Losing:
    """Loses every answer from the n-th on."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, _: Request, answer: Answer) -> Answer | Lost:
        self._left -= 1
        return answer if self._left > 0 else Lost("cut")


@pytest.mark.parametrize("since", [False, True], ids=["full", "delta"])
async def test_an_app_that_is_killed_between_any_two_steps_goes_on(since: bool, tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        await train(pair)
        old, now = Published(0, model_of(pair, 0).digest), await published(pair)
        ends = set()
        for count in range(100):
            shelf = Shelf(tmp_path / str(count), pair.task)
            if since:
                carrier, part = Carrier(pair), dense(pair, 0)
                await carrier.run(table_sync.sync(carrier.exchange(), shelf, old, dense=part, format_=TableFormat.INT8))
            carrier, part = Carrier(pair), dense(pair, 1)
            steps = table_sync.sync(carrier.exchange(), shelf, now, dense=part, format_=TableFormat.INT8, chunk=100)
            ends.add(await run_some(carrier, steps, count))
            copy = await sync(Carrier(pair), Shelf(tmp_path / str(count), pair.task), TableFormat.INT8)
            assert copy.path.read_bytes() == encoded(pair, 1, TableFormat.INT8)
            if True in ends:
                break
        assert ends == {False, True}
        assert count > 4


async def run_some(carrier: Carrier, steps: Steps[TableCopy], count: int) -> bool:
    """Carry out so many effects and then nothing more; return whether that was all of them."""
    found: object = None
    try:
        for _ in range(count):
            match steps.send(found):
                case Send(requests):
                    found = [await carrier.send(request) for request in requests]
                case Work(function):
                    found = function()
        steps.close()
    except StopIteration:
        return True
    return False


@FORMATS
@pytest.mark.parametrize("piece", [0, 1, 2])
async def test_one_wrong_byte_in_any_piece_is_noticed(format_: TableFormat, piece: int, tmp_path: Path) -> None:
    async with a_catalogue(items=24, row_width=2, bins=4) as pair:
        shelf = Shelf(tmp_path, pair.task)
        carrier = Carrier(pair, tamper=Flipping(piece * 40))
        with pytest.raises(CopyError, match="corrupted"):
            await sync(carrier, shelf, format_, chunk=40)
        assert shelf.table(format_) is None
        assert files(tmp_path) == set(), "nothing of it is taken up again"
        assert (await sync(Carrier(pair), shelf, format_)).path.read_bytes() == encoded(pair, 0, format_)


@pytest.mark.parametrize("since", [False, True], ids=["full", "delta"])
async def test_a_piece_that_server_0_refuses_does_not_stand_in_the_way_of_the_next_sync(
    since: bool, tmp_path: Path
) -> None:
    def refuses(request: Request, answer: Answer) -> Answer:
        return answer if request.headers.get("range", "").startswith("bytes=0-") else Answer(status=416)

    async with a_catalogue(items=24, row_width=2, bins=4) as pair:
        shelf = Shelf(tmp_path, pair.task)
        if since:
            await sync(Carrier(pair), shelf, TableFormat.INT8)
        await train(pair)
        with pytest.raises(RefusedError):
            await sync(Carrier(pair, tamper=refuses), shelf, TableFormat.INT8, chunk=10)
        assert files(tmp_path) == ({"table"} if since else set()), "the download begins again"
        copy = await sync(Carrier(pair), shelf, TableFormat.INT8)
        assert copy.path.read_bytes() == encoded(pair, 1, TableFormat.INT8)


@FORMATS
async def test_a_copy_in_use_stays_when_the_next_one_is_wrong(format_: TableFormat, tmp_path: Path) -> None:
    async with a_catalogue(items=24, row_width=2, bins=4) as pair:
        shelf = Shelf(tmp_path, pair.task)
        before = (await sync(Carrier(pair), shelf, format_)).path.read_bytes()
        await train(pair)
        carrier = Carrier(pair, tamper=Flipping(0))
        with pytest.raises(CopyError):
            await sync(carrier, shelf, format_, chunk=40)
        assert [("since" in request.path) for request in carrier.sent].count(True) == 1, "the delta, then all of it"
        kept = shelf.table(format_)
        assert kept is not None
        assert (kept.version, kept.path.read_bytes()) == (0, before)


class Flipping:
    """Turns a bit in the piece that begins at a byte, of every copy and every delta."""

    def __init__(self, first: int) -> None:
        self._first = f"bytes={first}-"

    def __call__(self, request: Request, answer: Answer) -> Answer:
        asked = request.headers.get("range", "")
        if request.server == 0 and asked.startswith(self._first) and answer.status == 206:
            return replace(answer, body=flipped(answer.body, len(answer.body) // 2))
        return answer


@FORMATS
@pytest.mark.parametrize("since", [False, True], ids=["full", "delta"])
async def test_a_table_that_server_1_does_not_have_is_not_used(
    format_: TableFormat, since: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_catalogue() as pair:
        shelf = Shelf(tmp_path, pair.task)
        if since:
            await sync(Carrier(pair), shelf, format_)
        await train(pair)
        models = pair.parties[0].models
        load = models.load

        def another(version: int) -> Model:
            model = load(version)
            rows = model.rows.copy()
            rows[7] += version  # server 0 gives out a table of its own, consistently
            return replace(model, rows=rows)

        monkeypatch.setattr(models, "load", another)
        now, part = await published(pair), dense(pair, 1)
        carrier = Carrier(pair)
        steps = table_sync.sync(carrier.exchange(), shelf, now, dense=part, format_=format_, chunk=CHUNK)
        with pytest.raises(CopyError, match="different tables"):
            await carrier.run(steps)
        kept = shelf.table(format_)
        assert (kept.version if kept else None) == (0 if since else None)
        assert files(tmp_path) == ({"table"} if since else set()), "refused copies do not fill the disk"


async def test_a_float32_copy_must_be_the_announced_model(tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        now, part = await published(pair), dense(pair, 0)
        wrong = [
            (Published(now.version, bytes(32)), part),
            (now, part + 1),  # the table alone is right
        ]
        for announced, given in wrong:
            carrier, shelf = Carrier(pair), Shelf(tmp_path, pair.task)
            steps = table_sync.sync(carrier.exchange(), shelf, announced, dense=given, format_=TableFormat.FLOAT32)
            with pytest.raises(CopyError, match="announced"):
                await carrier.run(steps)
        assert Shelf(tmp_path, pair.task).table(TableFormat.FLOAT32) is None


async def test_a_delta_that_leads_elsewhere_is_replaced_by_the_full_copy(tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        shelf = Shelf(tmp_path, pair.task)
        copy = await sync(Carrier(pair), shelf, TableFormat.INT8)
        copy.path.write_bytes(flipped(copy.path.read_bytes(), 1000))  # the disk has lost a bit
        await train(pair)
        fixed = await sync(Carrier(pair), shelf, TableFormat.INT8)
        assert fixed.path.read_bytes() == encoded(pair, 1, TableFormat.INT8)


@pytest.mark.parametrize(
    "headers",
    [
        {"etag": '"short"'},
        {"etag": ""},
        {"content-range": "bytes 0-699/100"},
        {"content-range": "bytes 0-699/1000000000000"},
        {"content-range": "bytes 1-700/1350"},
        {"content-range": "nonsense"},
    ],
)
async def test_a_piece_that_cannot_be_is_refused_at_once(headers: dict[str, str], tmp_path: Path) -> None:
    async with a_catalogue() as pair:

        def tamper(request: Request, answer: Answer) -> Answer:
            return replace(answer, headers={**answer.headers, **headers})

        carrier = Carrier(pair, tamper=tamper)
        with pytest.raises(CopyError):
            await sync(carrier, Shelf(tmp_path, pair.task), TableFormat.INT8)
        assert len(carrier.sent) == 1


async def test_a_copy_of_another_task_or_format_is_not_used(tmp_path: Path) -> None:
    async with a_catalogue() as pair, a_catalogue(name="another") as other:
        await sync(Carrier(pair), Shelf(tmp_path, pair.task), TableFormat.INT8)
        assert Shelf(tmp_path, other.task).table(TableFormat.INT8) is None
        assert Shelf(tmp_path, pair.task).table(TableFormat.FLOAT32) is None
        copy = await sync(Carrier(other), Shelf(tmp_path, other.task), TableFormat.INT8)
        assert copy.path.read_bytes() == encoded(other, 0, TableFormat.INT8)


async def test_a_shelf_that_is_damaged_is_filled_anew(tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        copy = await sync(Carrier(pair), Shelf(tmp_path, pair.task), TableFormat.INT8)
        other = Record({"task": pair.task.task_id.hex(), "of": "another version"}).encode()
        for name, data in (("table", b"damaged"), (copy.path.name, b"short"), ("part", other), ("table", other)):
            (tmp_path / name).write_bytes(data)
            again = await sync(Carrier(pair), Shelf(tmp_path, pair.task), TableFormat.INT8)
            assert again.path.read_bytes() == encoded(pair, 0, TableFormat.INT8)


async def test_recommendations_come_from_the_copy_and_leave_out_what_is_rated(tmp_path: Path) -> None:
    async with a_catalogue() as pair:
        copy = await sync(Carrier(pair), Shelf(tmp_path, pair.task), TableFormat.FLOAT32)
        model, private = taste_of(pair)
        part = dense(pair, 0)
        scores = model_of(pair, 0).rows @ private + part.sum()
        order = np.argsort(-scores, kind="stable")
        best = recommend(model, copy, private=private, dense=part, k=10)
        assert [item for item, _ in best] == order[:10].tolist()
        rated = order[[0, 3]]
        others = recommend(model, copy, private=private, dense=part, k=10, exclude=rated)
        assert [item for item, _ in others] == [item for item in order[:12].tolist() if item not in rated]
