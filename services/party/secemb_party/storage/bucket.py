"""Objects in a bucket of an S3-compatible object store, through obstore.

An upload is atomic: a bucket shows a whole object or none. A conditional upload (`If-None-Match: *`) stores an object
only if there is none, also against other processes. If the answer to one is lost, the next attempt finds the object
of the first; the callers compare the stored bytes with theirs.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from secemb_party.errors import SettingsError, StorageUnavailableError
from secemb_party.storage.objects import Data

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store

_PROBE = "secemb-probe"
_NO_BUCKET = "404 Not Found"  # what a listing is answered
_RETRIES = 4
_PAUSE_SECONDS = 0.1  # before the first retry of a conditional upload; doubled for each further one
_RETRY_SECONDS = 20
_CONNECT_SECONDS = 5
_TRANSFER_SECONDS = 600  # for one object


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """A bucket, the prefix of all names in it, and how it is reached."""

    url: str  # s3://bucket/prefix
    endpoint: str | None = None  # None: Amazon S3
    region: str = "us-east-1"
    access_key: str | None = None  # None: from AWS_ variables, or from the machine's own role
    secret_key: str | None = None

    def __repr__(self) -> str:
        return f"BucketAddress({self.url!r})"


class BucketObjects:
    """Objects in one bucket."""

    def __init__(self, address: BucketAddress) -> None:
        self._shown = f"{address.url} at {address.endpoint or 'Amazon S3'}"
        self._store = _open(address)

    def __repr__(self) -> str:
        return f"BucketObjects({self._shown!r})"

    def create(self, name: str, data: Data) -> bool:
        """Upload an object unless there is one. The client does not repeat such an upload by itself."""
        from obstore.exceptions import GenericError

        with self._translated():
            for attempt in range(_RETRIES):
                try:
                    return self._create(name, data)
                except GenericError:  # the connection broke
                    time.sleep(_PAUSE_SECONDS * 2**attempt)
            return self._create(name, data)

    def _create(self, name: str, data: Data) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._store.put(name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def replace(self, name: str, data: Data) -> None:
        """Upload an object."""
        with self._translated():
            self._store.put(name, data)

    def read(self, name: str) -> bytes | None:
        """Download an object."""
        with self._translated():
            try:
                return self._store.get(name).bytes().to_bytes()
            except FileNotFoundError:
                self._check_bucket()
                return None

    def read_part(self, name: str, first: int, count: int) -> bytes:
        """Download a range of an object."""
        with self._translated():
            return self._store.get_range(name, start=first, length=count).to_bytes()

    def size(self, name: str) -> int | None:
        """Return the size of an object, or None."""
        found = self._head(name)
        return None if found is None else found["size"]

    def stamp(self, name: str) -> str | None:
        """Return the entity tag of an object, or its time and size."""
        found = self._head(name)
        return None if found is None else found["e_tag"] or f"{found['last_modified']} {found['size']}"

    def _head(self, name: str) -> "ObjectMeta | None":
        with self._translated():
            try:
                return self._store.head(name)
            except FileNotFoundError:
                self._check_bucket()
                return None

    def names(self, folder: str) -> list[str]:
        """List the objects below a folder."""
        with self._translated():
            return sorted(one["path"] for page in self._store.list(f"{folder}/") for one in page)

    def folders(self, folder: str) -> list[str]:
        """List the folders in a folder."""
        with self._translated():
            found = self._store.list_with_delimiter(f"{folder}/")["common_prefixes"]
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def remove(self, names: Collection[str]) -> None:
        """Delete objects."""
        if names:
            with self._translated():
                for name in names:
                    self._delete(name)

    def check(self) -> None:
        """Raise unless an object can be stored, read and deleted."""
        with self._translated():
            self._store.put(_PROBE, b"secemb", use_multipart=False)
            self._store.get(_PROBE).bytes()

    def _delete(self, name: str) -> None:
        try:
            self._store.delete(name)
        except FileNotFoundError:
            self._check_bucket()

    def _check_bucket(self) -> None:
        """Raise FileNotFoundError if not the object is missing, but the bucket."""
        from obstore.exceptions import GenericError

        try:
            self._store.list_with_delimiter(f"{_PROBE}/")
        except GenericError as error:
            if _NO_BUCKET in str(error):
                raise FileNotFoundError from None
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate the client's errors. They are not chained: their texts quote requests."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except FileNotFoundError:
            raise StorageUnavailableError(
                f"the bucket of {self._shown} does not exist; create it, or correct [storage] url"
            ) from None
        except (PermissionDeniedError, UnauthenticatedError, PermissionError):
            raise StorageUnavailableError(
                f"{self._shown} refused the credentials; check [storage] access_key_file and secret_key_file, or the"
                " AWS_ variables, and that they may read, write, list and delete"
            ) from None
        except (BaseError, OSError) as error:
            raise StorageUnavailableError(
                f"the object store failed ({type(error).__name__}): {self._shown}; check that it is running and"
                " reachable"
            ) from None


def split_url(url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of s3://bucket/prefix."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.hostname or parts.query or parts.fragment or parts.username or parts.port:
        raise ValueError("must be an address like s3://bucket/prefix")
    return parts.netloc, parts.path.strip("/")


def _open(address: BucketAddress) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError:
        raise SettingsError("storage.url: an object store needs a client; install `secemb[s3]`") from None
    bucket, prefix = split_url(address.url)
    config: S3Config = {"region": address.region}
    if address.endpoint is not None:
        config["endpoint"] = address.endpoint
    if address.access_key is not None and address.secret_key is not None:
        config["access_key_id"], config["secret_access_key"] = address.access_key, address.secret_key
    limits: ClientConfig = {
        "allow_http": (address.endpoint or "").startswith("http://"),
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "timeout": timedelta(seconds=_TRANSFER_SECONDS),
    }
    retries: RetryConfig = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    return S3Store(bucket, prefix=prefix or None, config=config, client_options=limits, retry_config=retries)
