"""What every store must do, on files and on a real object store over HTTP; and what may go wrong on the way to one."""

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.integration.databases import NOW, complete_session, end_round, name, open_round
from tests.integration.object_server import ObjectServer

from secemb_party.errors import (
    DamagedShareError,
    ModelConflictError,
    ModelMissingError,
    NotRecordedError,
    StorageUnavailableError,
)
from secemb_party.ledger import Ledger
from secemb_party.storage import (
    Blob,
    Model,
    ModelFiles,
    ModelStep,
    ModelStore,
    OptimiserState,
    Shape,
    ShareFiles,
    ShareStore,
    read_all,
)
from secemb_party.storage.bucket import BucketAddress, BucketObjects
from secemb_party.storage.interfaces import BodyNames
from secemb_party.storage.mirrored_models import MirroredModels
from secemb_party.storage.object_bodies import ObjectBodies
from secemb_party.storage.object_shares import ObjectShares
from secemb_party.storage.objects import FolderObjects, Objects
from secemb_party.storage.retention import choose_kept
from secemb_party.storage.store_health import StoreHealth

TASK, SHAPE = name("task"), Shape(items=4, width=3, dense=2)
ROUND, LIST = name("round"), name("list")
Make = Callable[[], Objects]


@pytest.fixture(params=["folder", "bucket"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Open the same objects as another process would."""
    if request.param == "folder":
        return lambda: FolderObjects(tmp_path / "objects")
    server: ObjectServer = request.getfixturevalue("object_server")
    bucket = server.bucket()
    return lambda: server.objects(bucket)


@pytest.fixture(params=["files", "bucket"])
def shares(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ShareStore]:
    if request.param == "files":
        return lambda: ShareFiles(tmp_path)
    server: ObjectServer = request.getfixturevalue("object_server")
    bucket = server.bucket()
    return lambda: ObjectShares(server.objects(bucket))


@pytest.fixture(params=["files", "bucket"])
def models(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], ModelStore]:
    """Open the store of a process; each has its own cache of a bucket."""
    if request.param == "files":
        return lambda process: ModelFiles(tmp_path, TASK, SHAPE)
    server: ObjectServer = request.getfixturevalue("object_server")
    bucket = server.bucket()
    return lambda process: MirroredModels(ModelFiles(tmp_path / process, TASK, SHAPE), server.objects(bucket))


def model(version: int, seed: int = 0) -> Model:
    numbers = np.random.default_rng(version + 100 * seed).normal(size=14).astype(np.float32)
    return Model(task_id=TASK, version=version, rows=numbers[:12].reshape(4, 3), dense=numbers[12:])


def content(blob: Blob | None) -> bytes | None:
    return None if blob is None else read_all(blob)


def state(version: int) -> OptimiserState:
    tensors = {"rows": np.full((4, 3), version, dtype=np.float32)}
    return OptimiserState(task_id=TASK, version=version, kind="adam", steps=version, tensors=tensors)


def test_an_object_is_created_once_and_read_by_every_process(make: Make) -> None:
    objects, other = make(), make()
    assert objects.read("a/b") is None
    assert objects.stamp("a/b") is None
    assert objects.create("a/b", b"first")
    assert not other.create("a/b", b"second")
    assert other.read("a/b") == b"first"
    before = other.stamp("a/b")
    objects.replace("a/b", b"third")
    assert other.read("a/b") == b"third"
    assert other.stamp("a/b") not in {None, before}
    objects.create("a/c/d", b"")
    assert (other.names("a"), other.folders("a")) == (["a/b", "a/c/d"], ["c"])
    other.remove(["a/b", "a/none", "a/c/d"])
    assert (objects.names("a"), objects.folders("a")) == ([], [])
    objects.check()


def test_of_many_writers_at_once_one_creates_an_object(make: Make) -> None:
    bodies = [bytes([number]) * 5000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda body: make().create("race", body), bodies))
    assert won.count(True) == 1
    assert make().read("race") == bodies[won.index(True)]


def test_a_share_is_stored_once_and_the_first_writer_wins(shares: Callable[[], ShareStore]) -> None:
    first, second = shares(), shares()
    assert first.find(ROUND, LIST) is None
    digest = first.save(ROUND, LIST, b"share")
    assert digest == hashlib.sha256(b"share").digest()
    assert second.save(ROUND, LIST, b"with other noise") is None
    assert content(second.find(ROUND, LIST)) == b"share"
    assert content(second.load(ROUND, digest)) == b"share"
    with pytest.raises(DamagedShareError, match="different list"):
        second.save(ROUND, name("other list"), b"share of others")
    with pytest.raises(DamagedShareError, match="different list"):
        second.find(ROUND, name("other list"))
    with pytest.raises(DamagedShareError, match="altered"):
        second.load(ROUND, name("another digest"))
    assert second.has(ROUND)
    assert second.rounds() == [ROUND]
    second.prune({ROUND})
    assert first.has(ROUND)
    second.prune(set())
    assert (first.has(ROUND), first.find(ROUND, LIST), first.rounds()) == (False, None, [])


def test_processes_that_race_for_a_share_all_send_the_same_bytes(shares: Callable[[], ShareStore]) -> None:
    def share(noise: int) -> bytes | None:
        store, own = shares(), bytes([noise]) * 5000
        return own if store.save(ROUND, LIST, own) is not None else content(store.find(ROUND, LIST))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(share, range(8)))) == 1


def test_a_version_stored_by_one_process_is_loaded_by_another(models: Callable[[str], ModelStore]) -> None:
    one, other = models("one"), models("other")
    digest = one.save(model(7))
    assert other.load(7).digest == digest
    assert other.save(model(7)) == digest
    assert other.versions() == [7]
    with pytest.raises(ModelConflictError):
        models("third").save(model(7, seed=1))
    assert models("fourth").load(7).digest == digest
    with pytest.raises(ModelMissingError):
        other.load(8)
    other.replace(model(7, seed=1))
    assert models("fifth").load(7).digest == model(7, seed=1).digest


def test_the_process_that_takes_over_continues_from_the_latest_state(models: Callable[[str], ModelStore]) -> None:
    one, other = models("one"), models("other")
    assert one.load_state() is None
    for version in (1, 2):
        one.save(model(version))
        one.save_state(state(version))
    found = other.load_state()
    assert found is not None
    assert found.digest == state(2).digest
    assert other.load_state(1) is not None
    other.save(model(3))
    other.save_state(state(3))
    again = one.load_state()
    assert again is not None
    assert again.version == 3
    other.save_state(replace(state(3), steps=0))  # the operator has reset it
    again = one.load_state()
    assert again is not None
    assert again.steps == 0


def test_a_step_is_stored_for_every_process(models: Callable[[str], ModelStore]) -> None:
    rows, dense = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones(2, dtype=np.float32)
    blocks = [{"rows": rows[:2]}, {"rows": rows[2:], "dense": dense, "moments": dense}]
    step = ModelStep(task_id=TASK, version=1, kind="adam", steps=1, state={"moments": (2,)}, blocks=blocks)
    made = models("one").save_step(step)
    found, after = models("other").load(1), models("other").load_state()
    assert found.digest == made.digest
    assert (found.rows == rows).all()
    assert after is not None
    assert (after.version, after.steps) == (1, 1)
    received = ModelStep(task_id=TASK, version=2, kind="", steps=0, state={}, blocks=[{"rows": rows, "dense": dense}])
    models("one").save_step(received)  # as server 1 does, which has no optimiser
    assert (models("other").load(2).rows == rows).all()


def test_versions_are_thinned_in_every_place(models: Callable[[str], ModelStore]) -> None:
    one = models("one")
    for version in range(12):
        one.save(model(version))
        one.save_state(state(version))
    kept = choose_kept(range(12), keep=2, protect=[3])
    assert one.prune(keep=2, protect=[3]) == [one for one in range(12) if one not in kept]
    assert set(models("new").versions()) == set(one.versions()) == kept
    assert models("other").load_state(11) is not None
    assert models("other").load_state(1) is None


async def read(bodies: ObjectBodies, session: bytes, digests: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    [found] = await bodies.read(ROUND, [BodyNames(session, *digests)])
    return found.keys, found.update


@pytest.mark.asyncio
async def test_bodies_are_read_by_digest_and_dropped_with_their_round(make: Make) -> None:
    bodies, session, digest = ObjectBodies(make()), name("session", 16), hashlib.sha256(b"keys").digest()
    assert await bodies.rounds() == []
    for body in (b"keys", b"keys", b"others, which the ledger refuses"):
        await bodies.stage(ROUND, session, "keys", hashlib.sha256(body).digest(), body)
    update = hashlib.sha256(b"update").digest()
    with pytest.raises(NotRecordedError, match="deleted"):
        await read(bodies, session, (digest, update))
    await bodies.stage(ROUND, session, "update", update, b"update")
    assert await read(ObjectBodies(make()), session, (digest, update)) == (b"keys", b"update")
    await bodies.stage(ROUND, session, "update", update, b"altered in place")
    with pytest.raises(NotRecordedError, match="corrupted"):
        await read(bodies, session, (digest, update))
    assert await bodies.rounds() == [ROUND]
    assert await bodies.drop(ROUND) == 3
    assert (await bodies.rounds(), await bodies.drop(ROUND)) == ([], 0)


@pytest.mark.asyncio
async def test_a_ledger_keeps_its_bodies_as_objects(home: str, make: Make) -> None:
    async with await Ledger.open(home, migrate=False, bodies=ObjectBodies(make())) as ledger:
        round_id, session = await open_round(ledger), name("session", 16)
        await complete_session(ledger, round_id, session)
        [found] = await anext(ledger.read_bodies(round_id, [session], batch=8))
        assert (found.keys, found.update) == (b"keys of " + session, b"update of " + session)
        await end_round(ledger, round_id, NOW)
        assert await ledger.forget_bodies() == 2


def test_a_lost_answer_is_not_taken_for_another_writer(object_server: ObjectServer) -> None:
    bucket = object_server.bucket()
    shares, line = ObjectShares(object_server.objects(bucket, faulty=True)), object_server.line
    line.lose_answers = 1
    assert shares.save(ROUND, LIST, b"share") == hashlib.sha256(b"share").digest()
    assert content(shares.find(ROUND, LIST)) == b"share"
    objects = object_server.objects(bucket, faulty=True)
    line.lose_answers = 2
    objects.replace("a", b"bytes")
    assert objects.read("a") == b"bytes"
    assert line.lose_answers == 0


def test_an_upload_that_is_cut_leaves_nothing_or_is_repeated(object_server: ObjectServer) -> None:
    bucket, line = object_server.bucket(), object_server.line
    objects = object_server.objects(bucket, faulty=True)
    body = bytes(range(256)) * 4000
    line.cut_uploads = 1
    assert objects.create("a", body)
    assert objects.read("a") == body
    line.cut_uploads = 100
    with pytest.raises(StorageUnavailableError, match="object store failed"):
        objects.create("b", body)
    line.cut_uploads = 0
    assert objects.read("b") is None


@pytest.mark.asyncio
async def test_nothing_depends_on_a_listing(object_server: ObjectServer, tmp_path: Path) -> None:
    """A listing from before everything was written: what is needed is found, and what is old is removed later."""
    bucket, line = object_server.bucket(), object_server.line
    objects = object_server.objects(bucket, faulty=True)
    assert objects.names("models") == []
    line.stale = True
    try:
        one, other = (MirroredModels(ModelFiles(tmp_path / at, TASK, SHAPE), objects) for at in ("one", "other"))
        one.save(model(4))
        one.save_state(state(4))
        shares, bodies = ObjectShares(objects), ObjectBodies(objects)
        digest = shares.save(ROUND, LIST, b"share")
        assert digest is not None
        session, names = name("session", 16), [hashlib.sha256(part).digest() for part in (b"keys", b"update")]
        for part, hashed in zip(("keys", "update"), names, strict=True):
            await bodies.stage(ROUND, session, part, hashed, part.encode())
        assert other.load(4).digest == model(4).digest
        latest = other.load_state()
        assert latest is not None
        assert latest.version == 4
        assert shares.has(ROUND)
        assert content(shares.find(ROUND, LIST)) == content(shares.load(ROUND, digest)) == b"share"
        assert await read(bodies, session, (names[0], names[1])) == (b"keys", b"update")
        assert await bodies.rounds() == []
    finally:
        line.stale = False
    assert await bodies.rounds() == [ROUND]


@pytest.mark.asyncio
async def test_a_missing_bucket_is_reported_with_its_fix(object_server: ObjectServer) -> None:
    objects = object_server.objects("no-such-bucket")
    for call in (
        objects.check,
        lambda: objects.read("a"),
        lambda: objects.create("a", b""),
        lambda: objects.stamp("a"),
    ):
        with pytest.raises(
            StorageUnavailableError, match=r"bucket of s3://no-such-bucket/.* does not exist; create it"
        ):
            call()
    now = 0.0
    health = StoreHealth(objects, lambda: now)
    assert "does not exist" in (await health.fault() or "")
    assert await StoreHealth(object_server.objects(), lambda: now).fault() is None
    assert await StoreHealth(None, lambda: now).fault() is None


def test_an_object_store_that_cannot_be_reached_is_named_without_its_credentials() -> None:
    address = BucketAddress(url="s3://b/p", endpoint="http://127.0.0.1:9", access_key="key id", secret_key="not shown")
    objects = BucketObjects(address)
    assert "not shown" not in f"{address!r} {objects!r}"
    with pytest.raises(StorageUnavailableError, match="object store failed") as caught:
        objects.check()
    assert "not shown" not in str(caught.value)


@pytest.mark.asyncio
async def test_many_bodies_are_read_at_the_same_time(make: Make) -> None:
    bodies, sessions = ObjectBodies(make()), [name(f"session {number}", 16) for number in range(40)]
    digests = [hashlib.sha256(one).digest() for one in sessions]
    await asyncio.gather(
        *(
            bodies.stage(ROUND, one, part, digest, one)
            for one, digest in zip(sessions, digests, strict=True)
            for part in ("keys", "update")
        )
    )
    names = [BodyNames(one, digest, digest) for one, digest in zip(sessions, digests, strict=True)]
    assert [one.keys for one in await bodies.read(ROUND, names)] == sessions
