"""The published table over HTTP: the same bytes on both servers, in pieces, for as long as it is kept."""

import hashlib
from dataclasses import replace

import httpx
import pytest
from tests.devices.carrier import train
from tests.simulation.catalogues import FORMATS, a_catalogue, encoded, get, model_of
from tests.simulation.test_refusals import assert_problem

from secemb_party.storage import Model
from secemb_shared.messages.table import TableFormat

pytestmark = pytest.mark.asyncio


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
        await train(pair, 1)
        assert (await get(pair, 0, "table/1?format=int8")).status_code == 200
        await train(pair, 5)
        assert_problem(await get(pair, 0, "table/1?format=int8"), 404, "model-unknown")
        assert_problem(await get(pair, 0, "table/6?format=int8&since=1"), 410, "delta-unavailable")
        assert (await get(pair, 0, "table/6?format=int8&since=5")).status_code == 200


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
            answer = await get(pair, 0, "table/0?format=int8", range=range_)
            assert_problem(answer, 416, "range-unsatisfiable")
            assert answer.headers["content-range"] == f"bytes */{size}"


async def test_a_piece_of_something_else_is_never_sent() -> None:
    async with a_catalogue() as pair:
        whole = await get(pair, 0, "table/0?format=int8")
        etag = whole.headers["etag"]
        same = await get(pair, 0, "table/0?format=int8", range="bytes=3-5", if_range=etag)
        assert (same.status_code, same.content) == (206, whole.content[3:6])
        for other in ('"other"', f"W/{etag}", "Mon, 16 Nov 2026 15:00:00 GMT"):
            answer = await get(pair, 0, "table/0?format=int8", range="bytes=3-5", if_range=other)
            assert (answer.status_code, answer.content) == (200, whole.content)
