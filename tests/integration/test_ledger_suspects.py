"""Devices that were in discarded rounds again and again stand out, and those that were there by chance do not."""

import pytest
from tests.integration.databases import NOW, TASK, name, new_round, upload

from secemb_party.ledger import Ledger, NewToken, RoundState, Window
from secemb_party.operators import Order

pytestmark = pytest.mark.asyncio

BAD, BUSY, ONCE = (name(one) for one in ("bad", "busy", "once"))


async def a_round(ledger: Ledger, number: int, devices: list[bytes], to: RoundState) -> bytes:
    """Have a round that ended, with a complete session of each device and one that never sent anything."""
    new = new_round(number)
    await ledger.create_round(new)
    sealed = []
    for device in [*devices, name(f"silent {number}")]:
        session = name(f"{number} {device.hex()}", 16)
        window = Window(NOW + 10, NOW + 20)
        await ledger.admit(new.round_id, session, device=device, limit=10, waiting=10, now=NOW, window=window)
        if device in devices:
            await ledger.put_keys(upload(new.round_id, session), NOW, require_admission=True, limit=10)
            await ledger.put_update(upload(new.round_id, session), NOW)
            sealed.append(session)
    facts = {"sealed_sessions": sealed, "list_digest": name("list")}
    await ledger.advance(new.round_id, RoundState.OPEN, RoundState.SEALING, NOW)
    await ledger.advance(new.round_id, RoundState.SEALING, RoundState.SEALED, NOW, **facts)  # type: ignore[arg-type]
    await ledger.advance(new.round_id, RoundState.SEALED, RoundState.SHARED, NOW, share_digest=name("share"))
    if to is RoundState.PUBLISHED:
        await ledger.advance(new.round_id, RoundState.SHARED, RoundState.RECONSTRUCTED, NOW)
        await ledger.advance(new.round_id, RoundState.RECONSTRUCTED, to, NOW)
    else:
        await ledger.advance(new.round_id, RoundState.SHARED, to, NOW, reason="its sum is impossible")
    return new.round_id


async def test_the_device_that_is_in_all_discarded_rounds_and_in_few_others_comes_first(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    await ledger.add_tokens([NewToken("anna's phone", BAD)], Order("tests"), NOW)
    discarded = [await a_round(ledger, number, [BAD, BUSY], RoundState.DISCARDED) for number in range(3)]
    discarded.append(await a_round(ledger, 3, [BAD, ONCE], RoundState.DISCARDED))
    published = [await a_round(ledger, number, [BUSY, ONCE], RoundState.PUBLISHED) for number in range(4, 8)]
    found = await ledger.suspects(discarded=discarded, published=published)
    assert [(one.device, one.name, one.discarded, one.published) for one in found] == [
        (BAD, "anna's phone", 4, 0),
        (BUSY, None, 3, 4),
    ]
    assert BAD.hex() not in repr(found)
    assert await ledger.suspects(discarded=[], published=published) == []
    assert len(await ledger.suspects(discarded=discarded, published=published, limit=1)) == 1
    assert await ledger.discarded_by_kind(TASK) == {"train": 4}
    assert await ledger.shares_by_kind(TASK) == {"train": 8}


async def test_a_discarded_round_has_ended_and_says_why(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    round_id = await a_round(ledger, 1, [BAD, BUSY], RoundState.DISCARDED)
    record = await ledger.round(round_id)
    assert record is not None
    assert (record.ended, record.ended_at, record.reason) == (True, NOW, "its sum is impossible")
    assert await ledger.current_round(TASK) is None
