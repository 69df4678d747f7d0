"""Ids and titles on a device: fetched once and whole, checked against the task, and there without a network."""

import dataclasses
import hashlib
from pathlib import Path

import httpx
import pytest
from tests.devices.phone import Phone, a_phone
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_refusals import assert_problem

from secemb_party.errors import SettingsError
from secemb_party.storage.copies import open_catalogue
from secemb_sdk.context import Context
from secemb_sdk.errors import CopyError, UnavailableError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.catalogue_file import CatalogueFile
from secemb_sdk.recommend import Recommendation, TableFormat, find_catalogue, rank_candidates, recommend_items
from secemb_sdk.recommend import catalogue as device_catalogue
from secemb_sdk.recommend.catalogue import fetch_catalogue
from secemb_sdk.steps import Answer, Request, Steps
from secemb_shared.catalogue import FILE, Catalogue

pytestmark = pytest.mark.asyncio
ITEMS = 24
FILMS = Catalogue(
    ids=tuple(f"tt{row:04}" for row in range(ITEMS)),
    titles=tuple("" if row == 3 else f"Film {row}, “the” best" for row in range(ITEMS)),
    others={"year": ("1996",) * ITEMS},
)
PATH = "/catalogue"


async def recommended(phone: Phone, k: int = 5, *, titles: bool = True) -> list[Recommendation]:
    def steps(context: Context) -> Steps[list[Recommendation]]:
        return recommend_items(context, k=k, table=TableFormat.INT8, include_rated=True, titles=titles)

    context = phone.open()
    try:
        return await phone.drive(steps(context))
    finally:
        context.vault.close()


def asked(phone: Phone) -> list[tuple[int, str, str]]:
    return [one for one in phone.seen.requests if one[2] == "catalogue"]


def kept(phone: Phone) -> Path:
    return phone.folder / "public" / FILE


async def get(pair: Pair, role: int, **headers: str) -> httpx.Response:
    url = f"https://server{role}/v1/tasks/{pair.task.task_id.hex()}/catalogue"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await pair.send(role, httpx.Request("GET", url, headers=named))
    assert answer is not None
    return answer


async def test_recommendations_have_ids_and_titles() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        found = await recommended(a_phone(pair, 0), ITEMS)
    assert sorted(one.item for one in found) == list(range(ITEMS))
    for one in found:
        assert (one.id, one.title) == (FILMS.id_of(one.item), FILMS.title_of(one.item))


async def test_candidates_that_are_ranked_have_ids_and_titles() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        context = phone.open()
        try:
            found = await phone.drive(rank_candidates(context, [20, 3], include_rated=False))
        finally:
            context.vault.close()
    assert {(one.item, one.id, one.title) for one in found} == {
        (20, "tt0020", FILMS.title_of(20)),
        (3, "tt0003", None),
    }


async def test_the_file_is_fetched_once_and_whole_from_server_0_and_survives_being_offline() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        phone = a_phone(pair, 0)
        best = await recommended(phone)
        assert await recommended(phone) == best
        assert asked(phone) == [(0, "GET", "catalogue")]
        assert kept(phone).read_bytes() == FILMS.encode()
        phone.alter = lambda _, answer: Answer(status=503)
        assert await recommended(phone) == best


async def test_who_asks_for_no_titles_fetches_none() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        phone = a_phone(pair, 0)
        found = await recommended(phone, titles=False)
        assert {(one.id, one.title) for one in found} == {(None, None)}
        assert asked(phone) == []


async def test_a_task_without_a_catalogue_has_rows_alone() -> None:
    async with a_pair(initial_scale="1") as pair:
        phone = a_phone(pair, 0)
        assert {one.id for one in await recommended(phone)} == {None}
        assert asked(phone) == []
        context = phone.open()
        try:
            catalogue = await phone.drive(find_catalogue(context))
        finally:
            context.vault.close()
        assert catalogue.row_of("7") == 7


async def test_a_download_that_was_cut_continues_where_it_stopped() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        phone, pieces = a_phone(pair, 0), list[str]()

        def cut(request: Request, answer: Answer) -> Answer:
            if request.path.endswith(PATH):
                pieces.append(request.headers["range"])
            return Answer(status=503) if len(pieces) > 2 else answer

        async def fetch() -> None:
            context = phone.open()
            try:
                file = CatalogueFile(context.vault.public_folder, pair.task)
                await phone.drive(fetch_catalogue(Exchange(context), file, chunk=100))
            finally:
                context.vault.close()

        phone.alter = cut
        with pytest.raises(UnavailableError):
            await fetch()
        assert pieces[:3] == ["bytes=0-99", "bytes=100-199", "bytes=200-299"]
        pieces.clear()

        def whole(request: Request, answer: Answer) -> Answer:
            pieces.append(request.headers.get("range", ""))
            return answer

        phone.alter = whole
        await fetch()
        assert pieces[0] == "bytes=200-299"
        assert kept(phone).read_bytes() == FILMS.encode()


async def test_a_damaged_file_in_the_home_is_fetched_again() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        phone = a_phone(pair, 0)
        best = await recommended(phone)
        kept(phone).write_bytes(FILMS.encode().replace(b"Film", b"Fulm"))
        assert await recommended(phone) == best
        assert len(asked(phone)) == 2


def _other(answer: Answer, body: bytes) -> Answer:
    return Answer(status=200, headers={**answer.headers, "content-length": str(len(body))}, body=body)


@pytest.mark.parametrize("planted", ["other bytes", "too large", "longer than it says", "not there", "no body"])
async def test_a_hostile_answer_is_refused_with_the_fix_and_leaves_nothing(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        phone = a_phone(pair, 0)
        if planted == "too large":
            monkeypatch.setattr(device_catalogue, "LARGEST", 100)
        if planted == "not there":
            pair.parties[0].catalogue = None

        def alter(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith(PATH):
                return answer
            if planted == "other bytes":
                return _other(answer, FILMS.encode().replace(b"Film", b"Fulm"))
            if planted == "longer than it says":
                end = len(answer.body) - 1
                return dataclasses.replace(answer, headers={"content-range": f"bytes 0-{end}/{end - 5}"})
            return dataclasses.replace(answer, body=b"") if planted == "no body" else answer

        phone.alter = alter
        with pytest.raises(CopyError, match=r"titles=False|sync again"):
            await recommended(phone)
        assert not kept(phone).exists()
        assert not kept(phone).with_name("catalogue.part").exists()
        assert len(await recommended(phone, titles=False)) == 5
        phone.alter = lambda _, answer: answer
        monkeypatch.undo()
        if planted != "not there":
            assert (await recommended(phone))[0].id is not None


@pytest.mark.parametrize(
    "file",
    [
        FILMS.encode().replace(b"Film", b"F\xe9lm"),  # not UTF-8
        Catalogue(ids=("a", "b")).encode(),  # too few items
        b"<html>no such page</html>",
        b"",
    ],
)
async def test_a_file_that_is_not_a_catalogue_of_the_task_is_refused_although_its_digest_is_right(file: bytes) -> None:
    async with a_pair(initial_scale="1", catalogue=file) as pair:
        phone = a_phone(pair, 0)
        with pytest.raises(CopyError, match=r"titles=False|sync again"):
            await recommended(phone)
        assert not kept(phone).exists()


async def test_what_a_server_sees_does_not_depend_on_what_is_looked_up() -> None:
    async with a_pair(initial_scale="1", catalogue=FILMS.encode()) as pair:
        await pair.step()
        seen = []
        for number, candidates in enumerate(([1], [20, 3], [])):
            phone, sent = a_phone(pair, number), list[Request]()
            phone.alter = lambda request, answer, sent=sent: (sent.append(request), answer)[1]  # type: ignore[misc]
            context = phone.open()
            try:
                await phone.drive(rank_candidates(context, candidates, include_rated=True))
            finally:
                context.vault.close()
            seen.append([(one.server, one.path, dict(one.headers)) for one in sent if one.path.endswith(PATH)])
        assert seen[0] == seen[1] == seen[2]
        assert len(seen[0]) == 1


async def test_both_servers_serve_the_same_file_under_the_digest_of_the_task() -> None:
    async with a_pair(catalogue=FILMS.encode()) as pair:
        for role in (0, 1):
            answer = await get(pair, role)
            assert answer.content == FILMS.encode()
            assert answer.headers["etag"] == f'"{pair.task.catalogue}"'
            assert hashlib.sha256(answer.content).hexdigest() == pair.task.catalogue
            assert "immutable" in answer.headers["cache-control"]
            assert (await get(pair, role, if_none_match=answer.headers["etag"])).status_code == 304
            assert (await get(pair, role, range="bytes=4-9")).content == FILMS.encode()[4:10]
            assert_problem(await get(pair, role, range="bytes=99999-"), 416, "range-unsatisfiable")


async def test_a_server_without_a_catalogue_says_so() -> None:
    async with a_pair() as pair:
        for role in (0, 1):
            assert_problem(await get(pair, role), 404, "catalogue-unavailable")


@pytest.mark.parametrize("fault", ["missing", "altered", "too large"])
async def test_a_server_does_not_start_with_another_catalogue_than_the_tasks(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pair(catalogue=FILMS.encode()) as pair:
        path = tmp_path / FILE
        if fault != "missing":
            path.write_bytes(FILMS.encode() + (b"x" if fault == "altered" else b""))
        if fault == "too large":
            monkeypatch.setattr("secemb_party.storage.copies.LARGEST", 10)
        with pytest.raises(SettingsError, match=r"`secemb task create` wrote"):
            open_catalogue(pair.task, path)
