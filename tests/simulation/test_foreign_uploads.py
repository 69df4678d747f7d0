"""Uploads in somebody's session by who has its ticket and did not make its keys: one server tries it at the other.

Correction words that do not belong to a path leave random numbers at the end of it. So a sum with such an upload in it
shows where the session's paths lead; the last test lets one in, to see that it would.
"""

import hashlib

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from tests.devices.phone import Phone, a_phone, contributed, until_contributed
from tests.devices.scripted import KEYS, SHARED_ITEM, UPDATE, Device, a_device
from tests.simulation.pair import RELAYED, a_pair
from tests.simulation.tampering import LONG, check_sum, refusals

from secemb_party import upload_macs
from secemb_party.evaluation import upload_bytes
from secemb_sdk.round.contribute import NotNow
from secemb_sdk.steps import Answer, Request
from secemb_server0.plausibility import PartSize
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.codec import ENVELOPE_BYTES, envelope
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

pytestmark = pytest.mark.asyncio
SERVERS = [0, 1]


def made_up(spec: RoundSpec, session_id: bytes, role: int, seed: int = 1) -> bytes:
    """Return a well-formed upload of random words."""
    kind = Kind.UPDATE if spec.kind == TRAIN else Kind.SUM_SHARE
    body = np.random.default_rng(seed).bytes(upload_bytes(spec, role) - ENVELOPE_BYTES)
    return envelope(spec, session_id, kind, role) + body


def attempts(victim: Device, role: int, upload: bytes) -> list[str]:
    """Return the MACs the other server could make: it knows the keys and the MAC that it got itself."""
    place, digest = victim.spec.label(victim.name), hashlib.sha256(upload).digest()
    other = victim.headers(1 - role, UPDATE, victim.body(1 - role, UPDATE))["secemb-proof"]
    same_public = upload[:ENVELOPE_BYTES] + bytes(16) + victim.body(1 - role, KEYS)[ENVELOPE_BYTES + 16 :]
    guesses = (bytes(32), hold_of(victim.body(1 - role, KEYS)), hold_of(same_public))
    return [
        "",
        "zz" * 16,
        "00" * 16,
        "0" * 31,
        other,
        other.upper(),
        *(upload_mac(place, g, digest).hex() for g in guesses),
    ]


async def keyed(victim: Device) -> None:
    """Let a device join and send its keys to both servers."""
    await victim.join()
    for role in SERVERS:
        await victim.put(role, KEYS)


@pytest.mark.parametrize("kind", [TRAIN, SURVEY, EVALUATE])
@pytest.mark.parametrize("task", [{}, RELAYED], ids=["direct task", "relayed task"])
@pytest.mark.parametrize("role", SERVERS)
async def test_neither_server_can_upload_at_the_other_in_somebodys_session(
    role: int, task: dict[str, object], kind: str
) -> None:
    async with a_pair(**task, choose_kind=lambda _: kind) as pair:  # type: ignore[arg-type]
        await pair.step()
        devices = [a_device(pair, number) for number in range(2)]
        for device in devices:
            await keyed(device)
            if kind != TRAIN:
                device.write_sum([float(device.power)] * device.spec.sum_size)
        victim = devices[0]
        upload = made_up(victim.spec, victim.name, role)
        tried = attempts(victim, role, upload)
        for mac in tried:
            answer = await victim.put(role, UPDATE, upload, **{"secemb-proof": mac})
            assert answer is not None
            assert answer.status_code == 403
            assert answer.json()["type"] == "urn:secemb:problem:proof-refused"
        assert refusals(pair, role)["proof-refused"] == len(tried)
        assert (await pair.parties[role].ledger.counts(victim.spec.digest)).updates == 0
        for device in devices:  # and nothing is in their way
            for to in SERVERS:
                answer = await device.put(to, UPDATE)
                assert answer is not None
                assert answer.status_code == 200, answer.text
        await pair.finish()
        if kind == TRAIN:
            assert pair.parties[0].models.load(1).rows[SHARED_ITEM, 0] == -1.5


@pytest.mark.parametrize("role", SERVERS)
async def test_the_right_mac_of_other_bytes_is_a_conflict_and_a_wrong_one_of_the_same_bytes_is_refused(
    role: int,
) -> None:
    async with a_pair() as pair:
        await pair.step()
        device = a_device(pair, 0)
        await device.take_part()
        right = device.body(role, UPDATE)
        answers = [
            await device.put(role, UPDATE),
            await device.put(role, UPDATE, made_up(device.spec, device.name, role)),
            await device.put(role, UPDATE, right, **{"secemb-proof": "00" * 16}),
        ]
        assert [answer.status_code for answer in answers if answer is not None] == [200, 409, 403]


@pytest.mark.parametrize("what", ["update", "relayed-update"])
async def test_server_1_cannot_upload_at_server_0_for_a_device_that_goes_through_it(what: str) -> None:
    """It has every ticket that was passed on to it, and reaches server 0 as any device does."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        caught: list[Request] = []
        stop_after_keys(phones[0], caught)
        await phones[0].contribute()
        (keys,) = caught
        caught.clear()
        _, spec = await pair.parties[0].round(bytes.fromhex(keys.path.split("/")[3]))
        session = bytes.fromhex(keys.path.split("/")[5])
        body = made_up(spec, session, 0)
        if what == "relayed-update":
            body = envelope(spec, session, Kind.RELAYED_UPLOAD, 0) + body[ENVELOPE_BYTES:] + bytes(136)
        headers = {**keys.headers, "secemb-proof": "00" * 16}
        url = f"https://server0{keys.path.rsplit('/', 1)[0]}/{what}"
        answer = await pair.send(0, httpx.Request("PUT", url, headers=headers, content=body))
        assert answer is not None
        assert answer.json()["type"] == "urn:secemb:problem:proof-refused"
        await until_contributed(phones)
        await check_sum(pair, phones)


def stop_after_keys(phone: Phone, caught: list[Request]) -> None:
    """Kill an app when its keys are answered, and remember what it sent."""

    def catch(request: Request, answer: Answer) -> Answer:
        if request.path.endswith("keys") and not phone.deaths:
            caught.append(request)
        return answer

    phone.alter, phone.dies = catch, lambda: bool(caught)


@pytest.mark.parametrize("transport", ["direct", "relayed"])
async def test_a_device_of_the_sdk_shows_its_macs_again_after_a_restart(transport: str) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number, options={"transport": transport}) for number in range(2)]
        phones[0].fault = lambda: "unanswered" if phones[0].sent_at[-1][0].endswith("update") else "fine"
        assert isinstance(await phones[0].contribute(), NotNow)
        phones[0].fault = lambda: "fine"
        for phone in phones:
            await contributed(phone)
        assert "proof-refused" not in refusals(pair, 0) | refusals(pair, 1)
        await check_sum(pair, phones)


# What it is for.


@pytest.mark.parametrize("role", SERVERS)
async def test_without_macs_the_sum_would_show_where_a_sessions_paths_lead(
    role: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the server at `role` does not check. The other one uploads there before the device does.

    Server 0 sees the sum before it discards it; here it publishes it, so that the test sees it too.
    """
    monkeypatch.setattr(upload_macs, "check_upload_mac", lambda *_: None)
    monkeypatch.setattr(PartSize, "impossible", False)
    async with a_pair() as pair:
        await pair.step()
        victim, other = Victim(pair, hashlib.sha256(b"victim").digest()[:16]), a_device(pair, 3)
        for device in (victim, other):
            await keyed(device)
        words = made_up(victim.spec, victim.name, 1)[ENVELOPE_BYTES:]
        for to in SERVERS:  # at home it stores what it likes; here neither knows better
            dense = b"" if to else bytes(4 * pair.task.dense_size)
            upload = envelope(victim.spec, victim.name, Kind.UPDATE, to) + words + dense
            taken = await victim.put(to, UPDATE, upload, **{"secemb-proof": "00" * 16})
            assert taken is not None
            assert taken.status_code == 200
            await other.put(to, UPDATE)
        answer = await victim.put(role, UPDATE)
        assert answer is not None
        assert answer.status_code == 409  # the device learns it, too late
        await pair.finish()
        noisy = set(np.flatnonzero(pair.parties[0].models.load(1).rows.any(axis=1)).tolist())
        known = set(other.items().tolist())  # the attacker's own device, say
        assert noisy - known == ends_of(victim) - known
        assert set(victim.items().tolist()) <= noisy


def ends_of(device: Device) -> set[int]:
    """Return the items that a session's paths lead to: its own, and those where its empty slots happen to end."""
    assert device.session is not None
    leaves, per_bin = device.session._placement.leaves, device.spec.task.geometry.slots_per_bin
    order = device.spec.layout.order()
    return {int(order[slot // per_bin, leaf]) for slot, leaf in enumerate(leaves)} - {-1}


class Victim(Device):
    """A device whose items are nobody's business."""

    def items(self) -> npt.NDArray[np.int64]:
        return np.array([7, 13, 22], dtype=np.int64)
