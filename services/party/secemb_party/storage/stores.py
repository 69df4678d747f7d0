"""The stores that the settings choose: files in the data directory, or objects in a bucket."""

from dataclasses import dataclass

from secemb_party.settings import Settings
from secemb_party.storage.bucket import BucketAddress, BucketObjects
from secemb_party.storage.interfaces import BodyStore, ModelStore, ShareStore
from secemb_party.storage.mirrored_models import MirroredModels
from secemb_party.storage.model import Shape
from secemb_party.storage.model_files import ModelFiles
from secemb_party.storage.object_bodies import ObjectBodies
from secemb_party.storage.object_shares import ObjectShares
from secemb_party.storage.objects import FolderObjects, Objects
from secemb_party.storage.share_files import ShareFiles
from secemb_shared.messages import TaskSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores of one server."""

    bodies: BodyStore | None  # None: in the ledger
    shares: ShareStore
    objects: Objects | None  # the bucket, if there is one


def open_stores(settings: Settings) -> Stores:
    """Return the stores for bodies and shares, and the bucket in which models are kept."""
    bucket = _bucket(settings)
    objects: Objects = bucket or FolderObjects(settings.data_dir)
    return Stores(
        bodies=ObjectBodies(objects) if settings.storage.bodies == "store" else None,
        shares=ObjectShares(bucket) if bucket is not None else ShareFiles(settings.data_dir),
        objects=bucket,
    )


def open_models(settings: Settings, task: TaskSpec, objects: Objects | None = None) -> ModelStore:
    """Return the store of a task's models, in a bucket that is already open if it is given."""
    models = ModelFiles(settings.data_dir / "models", task.task_id, Shape.of(task))
    bucket = objects or _bucket(settings)
    return models if bucket is None else MirroredModels(models, bucket)


def _bucket(settings: Settings) -> BucketObjects | None:
    storage = settings.storage
    if storage.url is None:
        return None
    return BucketObjects(
        BucketAddress(
            url=storage.url,
            endpoint=storage.endpoint,
            region=storage.region,
            access_key=storage.access_key_file.text() if storage.access_key_file is not None else None,
            secret_key=storage.secret_key_file.text() if storage.secret_key_file is not None else None,
        )
    )
