"""Tasks and model versions in the ledger, on SQLite and on PostgreSQL."""

import pytest
from tests.integration.databases import NOW, TASK, name

from secemb_party.errors import LedgerConflictError, LedgerFormatError, NotRecordedError
from secemb_party.ledger import Ledger

pytestmark = pytest.mark.asyncio


async def test_a_task_is_stored_once_and_read_back(ledger: Ledger) -> None:
    stored = await ledger.add_task(TASK, b"specification", NOW)
    again = await ledger.add_task(TASK, b"specification", NOW + 5)
    assert stored == again == await ledger.task(TASK)
    assert (stored.spec, stored.added_at) == (b"specification", NOW)


async def test_a_task_id_never_gets_another_specification(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"specification", NOW)
    with pytest.raises(LedgerConflictError, match="different specification"):
        await ledger.add_task(TASK, b"other", NOW)
    assert (await ledger.tasks())[0].spec == b"specification"


async def test_tasks_are_listed_in_the_order_they_came(ledger: Ledger) -> None:
    names = [name("b"), name("a"), name("c")]
    for at, task_id in enumerate(names):
        await ledger.add_task(task_id, b"s", NOW + at)
    assert [task.task_id for task in await ledger.tasks()] == names
    assert await ledger.task(name("unknown")) is None


async def test_a_version_is_stored_once_and_keeps_its_digest(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    first = await ledger.record_version(TASK, 0, name("model"), NOW)
    assert await ledger.record_version(TASK, 0, name("model"), NOW + 9) == first
    with pytest.raises(LedgerConflictError, match="different digest"):
        await ledger.record_version(TASK, 0, name("other model"), NOW)
    assert await ledger.versions(TASK) == [first]


async def test_devices_see_the_newest_version_that_is_published(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    for version in range(3):
        await ledger.record_version(TASK, version, name(f"model {version}"), NOW)
    assert await ledger.published_version(TASK) is None
    await ledger.publish_version(TASK, 0, NOW)
    published = await ledger.publish_version(TASK, 1, NOW + 1)
    assert await ledger.published_version(TASK) == published
    assert (published.version, published.digest, published.published_at) == (1, name("model 1"), NOW + 1)
    assert [version.version for version in await ledger.versions(TASK)] == [2, 1, 0]


async def test_publishing_twice_keeps_the_first_time(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    await ledger.record_version(TASK, 0, name("model"), NOW)
    first = await ledger.publish_version(TASK, 0, NOW)
    assert await ledger.publish_version(TASK, 0, NOW + 100) == first


async def test_an_older_version_is_not_published_after_a_newer_one(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    for version in range(2):
        await ledger.record_version(TASK, version, name(f"model {version}"), NOW)
    await ledger.publish_version(TASK, 1, NOW)
    with pytest.raises(LedgerConflictError, match="version 1 has been published"):
        await ledger.publish_version(TASK, 0, NOW)


async def test_versions_of_one_task_are_not_those_of_another(ledger: Ledger) -> None:
    for task_id in (TASK, name("other")):
        await ledger.add_task(task_id, b"s", NOW)
    await ledger.record_version(TASK, 0, name("model"), NOW)
    assert await ledger.versions(name("other")) == []


async def test_a_version_needs_its_task_and_a_publication_its_version(ledger: Ledger) -> None:
    with pytest.raises(NotRecordedError, match="task"):
        await ledger.record_version(TASK, 0, name("model"), NOW)
    await ledger.add_task(TASK, b"s", NOW)
    with pytest.raises(NotRecordedError, match="version 7"):
        await ledger.publish_version(TASK, 7, NOW)


async def test_ids_and_digests_of_another_length_are_refused(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    with pytest.raises(LedgerFormatError, match="expected 32 bytes, got 31"):
        await ledger.add_task(TASK[:31], b"s", NOW)
    with pytest.raises(LedgerFormatError):
        await ledger.record_version(TASK, 0, b"digest", NOW)
    with pytest.raises(LedgerFormatError):
        await ledger.task(TASK + b"\0")
    assert len(await ledger.tasks()) == 1
