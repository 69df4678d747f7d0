"""Server 1 believes nothing that it can check: whatever server 0 asks wrongly is refused and changes nothing."""

import hashlib
import json
from dataclasses import replace

import httpx
import pytest
from tests.devices.scripted import UPDATE, a_device
from tests.simulation.pair import PEER_TOKEN, Pair, a_pair
from tests.simulation.test_refusals import assert_problem

from secemb_party.ledger import RoundRecord, RoundState
from secemb_party.peer_messages import Announcement, ListDigest, Offer, PeerMessage, Published, SessionList, list_digest
from secemb_party.storage import Model
from secemb_party.storage.transit import PIECE_DIGEST
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

pytestmark = pytest.mark.asyncio
REFUSED = 409, "peer-refused"


async def call(pair: Pair, path: str, message: PeerMessage, token: str = PEER_TOKEN) -> httpx.Response:
    return await call_raw(pair, path, message.model_dump_json().encode(), token)


async def call_raw(pair: Pair, path: str, content: bytes, token: str = PEER_TOKEN) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return await pair.deliver(
        httpx.Request("POST", f"https://server1/peer/v1/{path}", content=content, headers=headers)
    )


async def current(pair: Pair, role: int = 1) -> RoundRecord:
    record = await pair.parties[role].ledger.current_round(pair.task.task_id)
    assert record is not None
    return record


async def a_round(pair: Pair, count: int = 3, first: int = 0) -> tuple[str, list[str]]:
    """Open a round with so many complete sessions; return the path of its calls and the sessions, sorted."""
    await pair.step()
    devices = [a_device(pair, number) for number in range(first, first + count)]
    for device in devices:
        await device.take_part()
    record = await current(pair)
    return f"rounds/{record.round_id.hex()}", sorted(device.name.hex() for device in devices)


async def offer(pair: Pair) -> Offer:
    """Return what server 0 holds."""
    held = await pair.parties[0].ledger.session_summaries((await current(pair, 0)).round_id)
    return Offer(
        sessions=[
            (one.session_id.hex(), (one.keys_public_digest or b"").hex(), (one.update_public_digest or b"").hex())
            for one in held
            if one.complete
        ]
    )


async def sealed(pair: Pair) -> tuple[str, list[str]]:
    """Seal a round at server 1."""
    path, names = await a_round(pair)
    assert (await call(pair, f"{path}/prepare", await offer(pair))).status_code == 200
    assert (await call(pair, f"{path}/commit", SessionList(sessions=names))).status_code == 200
    return path, names


def digest_of(names: list[str]) -> ListDigest:
    return ListDigest(digest=list_digest([bytes.fromhex(name) for name in names]).hex())


@pytest.mark.parametrize("path", ["announce", "rounds/{}/prepare", "rounds/{}/commit", "rounds/{}/share"])
@pytest.mark.parametrize("token", ["", "another token", PEER_TOKEN + " "])
async def test_a_wrong_bearer_gets_nowhere(path: str, token: str) -> None:
    async with a_pair() as pair:
        where, names = await a_round(pair)
        answer = await call(pair, path.format(where.split("/")[1]), SessionList(sessions=names), token)
        assert_problem(answer, 401, "unauthorized")
        assert (await current(pair)).state is RoundState.OPEN


async def test_a_list_with_a_session_that_server_1_does_not_hold_is_refused() -> None:
    async with a_pair() as pair:
        path, names = await a_round(pair)
        await call(pair, f"{path}/prepare", await offer(pair))
        wrong = sorted([*names[:2], "ff" * 16])
        assert_problem(await call(pair, f"{path}/commit", SessionList(sessions=wrong)), *REFUSED)
        assert (await current(pair)).state is RoundState.SEALING


async def test_a_list_below_the_minimum_is_refused() -> None:
    async with a_pair() as pair:
        path, names = await a_round(pair)
        few = Offer(sessions=(await offer(pair)).sessions[:1])
        assert (await call(pair, f"{path}/prepare", few)).json() == {"sessions": names[:1], "rejected": []}
        assert_problem(await call(pair, f"{path}/commit", SessionList(sessions=names[:1])), *REFUSED)
        assert (await current(pair)).sealed_sessions is None


@pytest.mark.parametrize("change", ["part", "unsorted", "twice", "empty"])
async def test_no_list_but_the_whole_sorted_one_is_sealed(change: str) -> None:
    async with a_pair() as pair:
        path, names = await a_round(pair)
        await call(pair, f"{path}/prepare", await offer(pair))
        lists = {"part": names[:2], "unsorted": names[::-1], "twice": [*names, names[2]], "empty": []}
        assert_problem(await call(pair, f"{path}/commit", SessionList(sessions=lists[change])), *REFUSED)
        assert (await current(pair)).state is RoundState.SEALING


async def test_a_second_list_is_refused_and_so_is_a_second_offer() -> None:
    async with a_pair() as pair:
        path, names = await sealed(pair)
        few = Offer(sessions=(await offer(pair)).sessions[:2])
        assert (await call(pair, f"{path}/prepare", few)).json() == {"sessions": names, "rejected": []}
        assert_problem(await call(pair, f"{path}/commit", SessionList(sessions=names[:2])), *REFUSED)
        again = await call(pair, f"{path}/commit", SessionList(sessions=names))
        assert again.json() == digest_of(names).model_dump()


async def test_a_list_is_not_sealed_before_it_was_compared() -> None:
    async with a_pair() as pair:
        path, names = await a_round(pair)
        assert_problem(await call(pair, f"{path}/commit", SessionList(sessions=names)), *REFUSED)
        assert (await current(pair)).state is RoundState.OPEN


async def test_a_session_with_another_public_part_is_not_offered() -> None:
    async with a_pair() as pair:
        path, names = await a_round(pair)
        twisted = a_device(pair, 7, twist=UPDATE)
        await twisted.take_part()
        expected = {"sessions": names, "rejected": [twisted.name.hex()]}
        assert (await call(pair, f"{path}/prepare", await offer(pair))).json() == expected


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_share_is_not_given_before_the_list_is_sealed(prepared: bool) -> None:
    async with a_pair() as pair:
        path, names = await a_round(pair)
        if prepared:
            await call(pair, f"{path}/prepare", await offer(pair))
        assert_problem(await call(pair, f"{path}/share", digest_of(names)), *REFUSED)
        assert (await current(pair)).share_digest is None


async def test_a_share_is_given_for_the_sealed_list_only_and_always_the_same() -> None:
    async with a_pair() as pair:
        path, names = await sealed(pair)
        assert_problem(await call(pair, f"{path}/share", digest_of(names[:2])), *REFUSED)
        first = await call(pair, f"{path}/share", digest_of(names))
        await pair.crash(1)
        assert (await call(pair, f"{path}/share", digest_of(names))).content == first.content


async def test_a_sealed_round_is_not_aborted() -> None:
    async with a_pair() as pair:
        path, _ = await sealed(pair)
        headers = {"authorization": f"Bearer {PEER_TOKEN}"}
        request = httpx.Request("POST", f"https://server1/peer/v1/{path}/abort", json={"reason": "no"}, headers=headers)
        assert_problem(await pair.deliver(request), *REFUSED)
        assert (await current(pair)).state is RoundState.SEALED


async def test_a_round_on_another_model_is_not_opened() -> None:
    async with a_pair() as pair:
        published = await pair.parties[1].ledger.published_version(pair.task.task_id)
        assert published is not None
        good = RoundSpec(task=pair.task, number=0, model_version=0, model_digest=published.digest)
        for wrong in (replace(good, model_version=1), replace(good, model_digest=bytes(32))):
            assert_problem(await announce(pair, wrong), *REFUSED)
        assert await pair.parties[1].ledger.last_round(pair.task.task_id) is None
        assert (await announce(pair, good)).status_code == 200


async def test_a_second_round_is_not_opened_before_the_first_has_ended_nor_a_number_used_twice() -> None:
    async with a_pair() as pair:
        await a_round(pair)
        spec = RoundSpec.decode((await current(pair)).spec, pair.task)
        assert_problem(await announce(pair, replace(spec, number=1)), *REFUSED)
        await pair.finish()
        standing = await pair.parties[1].ledger.published_version(pair.task.task_id)
        assert standing is not None
        used = replace(spec, model_version=standing.version, model_digest=standing.digest)
        assert_problem(await announce(pair, used), *REFUSED)


async def test_no_round_is_opened_beyond_the_last_of_the_task() -> None:
    async with a_pair(rounds=2) as pair:
        for number in (0, 1):
            await a_round(pair, first=3 * number)
            await pair.finish()
        published = await pair.parties[1].ledger.published_version(pair.task.task_id)
        assert published is not None
        spec = RoundSpec(task=pair.task, number=2, model_version=published.version, model_digest=published.digest)
        for kind in (TRAIN, SURVEY):
            answer = await announce(pair, replace(spec, kind=kind))
            assert_problem(answer, *REFUSED)
            assert "its 2 training rounds" in answer.json()["detail"]
        closing = replace(spec, kind=EVALUATE)
        assert (await announce(pair, closing)).status_code == 200
        await pair.parties[1].advance(closing.digest, RoundState.OPEN, RoundState.ABORTED, pair.clock(), reason="ended")
        for kind in (TRAIN, SURVEY, EVALUATE):  # one evaluation, and nothing after it
            assert_problem(await announce(pair, replace(spec, number=3, kind=kind)), *REFUSED)


async def test_rounds_that_trained_nothing_do_not_count_for_server_1() -> None:
    async with a_pair(rounds=1) as pair:
        spec = RoundSpec(task=pair.task, number=0, model_version=0, model_digest=pair.parties[1].models.load(0).digest)
        for number, kind in enumerate([TRAIN, SURVEY, EVALUATE, EVALUATE, TRAIN]):
            one = replace(spec, number=number, kind=kind)
            assert (await announce(pair, one)).status_code == 200
            await pair.parties[1].advance(one.digest, RoundState.OPEN, RoundState.ABORTED, pair.clock(), reason="empty")


async def test_publishing_again_is_answered_as_the_first_time_whatever_came_since() -> None:
    async with a_pair() as pair:
        answers: list[bytes] = []
        calls: list[httpx.Request] = []
        deliver = pair.deliver

        async def noted(request: httpx.Request) -> httpx.Response:
            answer = await deliver(request)
            if request.url.path.endswith("/publish") and answer.json()["digest"] is not None:
                calls.append(request)
                answers.append(answer.content)
            return answer

        pair.deliver = noted  # type: ignore[method-assign]
        await pair.start_server(0)
        for first in (0, 3):
            await a_round(pair, first=first)
            await pair.finish()
        assert answers[0] != answers[1]
        assert (await deliver(calls[0])).content == answers[0]


async def test_a_round_of_another_task_is_not_opened() -> None:
    async with a_pair() as pair:
        other = replace(pair.task, name="another")
        answer = await announce(pair, RoundSpec(task=other, number=0, model_version=0, model_digest=bytes(32)))
        assert_problem(answer, 400, "specification-invalid")


async def announce(pair: Pair, spec: RoundSpec) -> httpx.Response:
    times = {"opened_at": 0.0, "join_until": 1.0, "upload_until": 2.0}
    shares = await pair.parties[0].ledger.shares_by_kind(pair.task.task_id)
    key = bytes(16).hex()
    message = Announcement(round=spec.encode().decode(), shares=shares, check_key=key, **times)
    return await call(pair, "announce", message)


async def test_a_round_that_is_announced_with_another_key_for_its_checks_ends() -> None:
    """With two keys server 0 would see two points of what a device has proved, and with them its update."""
    async with a_pair() as pair:
        await pair.step()
        record = await current(pair)
        key = await pair.parties[1].check_key(record.round_id)
        assert_problem(await announce(pair, RoundSpec.decode(record.spec, pair.task)), 409, "round-aborted")
        found = await pair.parties[1].ledger.round(record.round_id)
        assert found is not None
        assert found.state is RoundState.ABORTED
        assert await pair.parties[1].check_key(record.round_id) == key


async def publish(pair: Pair, path: str, model: Model, **changes: object) -> httpx.Response:
    return await publish_bytes(pair, path, model.version, model.digest, model.encode(), **changes)


async def publish_bytes(
    pair: Pair, path: str, version: int, digest: bytes, body: bytes, **changes: object
) -> httpx.Response:
    facts = {"version": version, "digest_hex": digest.hex(), "size": len(body), "changes": False} | changes
    headers = {
        "authorization": f"Bearer {PEER_TOKEN}",
        "content-type": "application/octet-stream",
        PIECE_DIGEST: hashlib.sha256(body).hexdigest(),
    }
    url = f"https://server1/peer/v1/models/{facts['digest_hex']}/0"
    await pair.deliver(httpx.Request("PUT", url, content=body, headers=headers))
    return await call(pair, f"{path}/publish", Published.model_validate(facts))


async def test_only_the_next_version_with_its_own_digest_is_published() -> None:
    async with a_pair() as pair:
        path, names = await sealed(pair)
        model = pair.parties[1].models.load(0)
        following = replace(model, version=1)
        assert_problem(await publish(pair, path, following), *REFUSED)  # there is no sum yet
        await call(pair, f"{path}/share", digest_of(names))
        assert_problem(await publish(pair, path, replace(model, version=2)), *REFUSED)
        assert_problem(await publish(pair, path, model), *REFUSED)
        assert_problem(await publish(pair, path, following, digest_hex="00" * 32), *REFUSED)
        assert_problem(await publish(pair, path, following, size=4), *REFUSED)
        assert pair.parties[1].models.versions() == [0]
        answer = await publish(pair, path, following)
        assert answer.json() == {"received": len(following.encode()), "digest": following.digest.hex()}
        assert pair.parties[1].models.versions() == [0, 1]


async def test_a_model_with_a_number_that_is_none_is_not_published() -> None:
    async with a_pair() as pair:
        path, names = await sealed(pair)
        await call(pair, f"{path}/share", digest_of(names))
        body = b"\x00\x00\xc0\x7f" + pair.parties[1].models.load(0).encode()[4:]
        answer = await publish_bytes(pair, path, 1, bytes(32), body)
        assert_problem(answer, 400, "weights-invalid")
        assert pair.parties[1].models.versions() == [0]


@pytest.mark.parametrize("reason", ["", "a\0b", "a\nb", "x" * 501])
async def test_an_abort_for_a_reason_that_no_ledger_keeps_is_refused(reason: str) -> None:
    async with a_pair() as pair:
        path, _ = await a_round(pair)
        answer = await call_raw(pair, f"{path}/abort", json.dumps({"reason": reason}).encode())
        assert_problem(answer, 400, "request-invalid")
        assert (await current(pair)).state is RoundState.OPEN


@pytest.mark.parametrize("member", ["opened_at", "join_until", "upload_until"])
@pytest.mark.parametrize("moment", ["NaN", "Infinity", "-Infinity"])
async def test_a_round_that_opens_or_ends_at_no_time_is_not_announced(member: str, moment: str) -> None:
    async with a_pair() as pair:
        published = await pair.parties[1].ledger.published_version(pair.task.task_id)
        assert published is not None
        spec = RoundSpec(task=pair.task, number=0, model_version=0, model_digest=published.digest)
        told = {"round": spec.encode().decode(), "opened_at": 1.0, "join_until": 2.0, "upload_until": 3.0}
        answer = await call_raw(pair, "announce", json.dumps(told | {member: moment}).encode())
        assert_problem(answer, 400, "request-invalid")
        assert await pair.parties[1].ledger.current_round(pair.task.task_id) is None
