"""Copies of the published table: exact, resumable, the same on both servers, and used only if they are."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.devices.carrier import Carrier, dense, published, taste_of, train
from tests.devices.scripted import flipped
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_refusals import assert_problem

from secemb_party.storage import Model
from secemb_sdk.errors import CopyError, RefusedError, UnavailableError
from secemb_sdk.home.records import Record
from secemb_sdk.recommend import sync as table_sync
from secemb_sdk.recommend.copy import Shelf, TableCopy
from secemb_sdk.recommend.rank import recommend
from secemb_sdk.round.join import Published
from secemb_sdk.steps import Answer, Lost, Request, Send, Steps, Work
from secemb_shared.messages.table import CopyShape, TableFormat

pytestmark = pytest.mark.asyncio
FORMATS = pytest.mark.parametrize("format_", list(TableFormat))
CHUNK = 700  # several pieces a copy


@asynccontextmanager
async def a_catalogue(**task: object) -> AsyncIterator[Pair]:
    """Run a pair whose table is not all zeros."""
    fields: dict[str, object] = {"items": 150, "row_width": 5, "bins": 8, "initial_scale": "1"}
    async with a_pair(**(fields | task)) as pair:  # type: ignore[arg-type]
        yield pair


async def get(pair: Pair, role: int, what: str, **headers: str) -> httpx.Response:
    url = f"https://server{role}/v1/tasks/{pair.task.task_id.hex()}/{what}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await pair.send(role, httpx.Request("GET", url, headers=named))
    assert answer is not None
    return answer


async def sync(carrier: Carrier, shelf: Shelf, format_: TableFormat, *, chunk: int = CHUNK) -> TableCopy:
    """Let a device fetch what is published now."""
    now = await published(carrier.pair)
    part = dense(carrier.pair, now.version)
    return await carrier.run(table_sync.sync(carrier.exchange(), shelf, now, dense=part, format_=format_, chunk=chunk))


def model_of(pair: Pair, version: int, role: int = 0) -> Model:
    return pair.parties[role].models.load(version)


def encoded(pair: Pair, version: int, format_: TableFormat) -> bytes:
    """Return the full copy that must come out."""
    shape = CopyShape(format=format_, items=pair.task.items, width=pair.task.row_width)
    return shape.encode(model_of(pair, version).rows).tobytes()


def files(folder: Path) -> set[str]:
    return {path.name.split("-")[0] for path in folder.iterdir()}


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@FORMATS
async def test_both_servers_serve_the_same_bytes_under_the_same_tag(format_: TableFormat) -> None:
    async with a_catalogue() as pair:
        await train(pair)
        for what in (f"table/1?format={format_}", f"table/1?format={format_}&since=0", "dense/1"):
            one, other = [await get(pair, role, what) for role in (0, 1)]
            assert one.status_code == 200
            assert one.headers["etag"] == other.headers["etag"] == f'"{hashlib.sha256(one.content).hexdigest()}"'
            assert one.content == other.content
            assert one.headers["secemb-model-digest"] == model_of(pair, 1).digest.hex()
        assert (await get(pair, 0, f"table/1?format={format_}")).content == encoded(pair, 1, format_)


async def test_a_delta_names_the_full_copy_that_it_leads_to() -> None:
    async with a_catalogue() as pair:
        await train(pair)
        delta = await get(pair, 0, "table/1?format=int8&since=0")
        full = await get(pair, 1, "table/1?format=int8")
        assert f'"{delta.headers["secemb-copy-sha256"]}"' == full.headers["etag"]
        assert len(delta.content) < len(full.content)
        assert "secemb-copy-sha256" not in full.headers


@pytest.mark.parametrize("what", ["table/0?format=int8", "table/0?format=float32", "dense/0"])
async def test_who_has_it_gets_304_and_no_body(what: str) -> None:
    async with a_catalogue() as pair:
        etag = (await get(pair, 0, what)).headers["etag"]
        for tags in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            answer = await get(pair, 1, what, if_none_match=tags, range="bytes=0-0")
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        assert (await get(pair, 1, what, if_none_match='"other"')).status_code == 200
        assert (await get(pair, 1, what, if_none_match=etag.strip('"'))).status_code == 200


async def test_models_are_not_read_again_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_catalogue() as pair:
        models, loads = pair.parties[0].models, list[int]()
        load = models.load

        def counted(version: int) -> Model:
            loads.append(version)
            return load(version)

        monkeypatch.setattr(models, "load", counted)
        for _ in range(5):
            for what in ("dense/0", "table/0?format=int8", "table/0?format=float32"):
                assert (await get(pair, 0, what)).status_code == 200
        assert loads == [0, 0, 0]


async def test_only_published_versions_that_are_kept_are_served() -> None:
    async with a_catalogue() as pair:
        hidden = replace(model_of(pair, 0), version=1)
        for role in (0, 1):
            pair.parties[role].models.save(hidden)  # made, and not published
            for what in ("dense/1", "table/1?format=int8", "table/2?format=int8"):
                assert_problem(await get(pair, role, what), 404, "model-unknown")
            assert_problem(await get(pair, role, "table/0?format=int8&since=1"), 410, "delta-unavailable")
            assert_problem(await get(pair, role, "table/0?format=int8&since=0"), 410, "delta-unavailable")


async def test_a_version_that_is_no_longer_kept_is_gone_although_it_was_copied_before() -> None:
    async with a_catalogue() as pair:
        assert (await get(pair, 0, "table/0?format=int8")).status_code == 200
        await train(pair, 4)
        assert_problem(await get(pair, 0, "table/0?format=int8"), 404, "model-unknown")
        assert_problem(await get(pair, 0, "table/4?format=int8&since=0"), 410, "delta-unavailable")
        assert (await get(pair, 0, "table/4?format=int8&since=3")).status_code == 200


async def test_another_task_or_format_is_refused() -> None:
    async with a_catalogue() as pair:
        assert_problem(await get(pair, 0, "table/0?format=int4"), 400, "request-invalid")
        assert_problem(await get(pair, 0, "table/0"), 400, "request-invalid")
        other = httpx.Request("GET", f"https://server0/v1/tasks/{'0' * 64}/table/0?format=int8")
        assert_problem(await pair.send(0, other), 404, "task-unknown")


async def test_every_piece_of_a_copy_is_what_it_says() -> None:
    async with a_catalogue(items=24, row_width=2, bins=4) as pair:
        what = "table/0?format=int8"
        whole = await get(pair, 0, what)
        size = len(whole.content)
        assert whole.headers["accept-ranges"] == "bytes"
        for first in range(size):
            for last in (first, first + 10, size - 1, size + 5):
                answer = await get(pair, 0, what, range=f"bytes={first}-{last}")
                end = min(last, size - 1)
                if last < first:
                    continue
                assert (answer.status_code, answer.content) == (206, whole.content[first : end + 1])
                assert answer.headers["content-range"] == f"bytes {first}-{end}/{size}"
                assert answer.headers["content-length"] == str(end + 1 - first)
                assert answer.headers["etag"] == whole.headers["etag"]
            assert (await get(pair, 0, what, range=f"bytes={first}-")).content == whole.content[first:]
            assert (await get(pair, 0, what, range=f"bytes=-{first + 1}")).content == whole.content[-first - 1 :]


@pytest.mark.parametrize(
    "range_", ["bytes=5-4", "bytes=-", "bytes=0-1,3-4", "items=0-1", "bytes=x-1", "0-1", "bytes=²-3"]
)
async def test_what_is_no_single_range_of_bytes_gets_everything(range_: str) -> None:
    async with a_catalogue() as pair:
        whole = await get(pair, 0, "table/0?format=int8")
        url = f"https://server0/v1/tasks/{pair.task.task_id.hex()}/table/0?format=int8"
        answer = await pair.send(0, httpx.Request("GET", url, headers=[(b"range", range_.encode("latin-1"))]))
        assert answer is not None
        assert (answer.status_code, answer.content) == (200, whole.content)


async def test_a_range_behind_the_end_is_refused() -> None:
    async with a_catalogue() as pair:
        size = len((await get(pair, 0, "table/0?format=int8")).content)
        for range_ in (f"bytes={size}-", f"bytes={size}-{size + 9}", "bytes=-0"):
            assert_problem(await get(pair, 0, "table/0?format=int8", range=range_), 416, "range-unsatisfiable")


async def test_a_piece_of_something_else_is_never_sent() -> None:
    async with a_catalogue() as pair:
        whole = await get(pair, 0, "table/0?format=int8")
        etag = whole.headers["etag"]
        same = await get(pair, 0, "table/0?format=int8", range="bytes=3-5", if_range=etag)
        assert (same.status_code, same.content) == (206, whole.content[3:6])
        for other in ('"other"', f"W/{etag}", "Mon, 16 Nov 2026 15:00:00 GMT"):
            answer = await get(pair, 0, "table/0?format=int8", range="bytes=3-5", if_range=other)
            assert (answer.status_code, answer.content) == (200, whole.content)


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
        with pytest.raises(CopyError, match="damaged"):
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
