"""The files of a task: its two directories, one for each server, and the files that a task is made from."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from secemb_shared.catalogue import FILE as CATALOGUE
from secemb_shared.messages import TaskSpec
from secemb_tools.datasets.catalogue import catalogue_from
from secemb_tools.errors import OperationError
from secemb_tools.operate.directory import PUBLIC, SECRET, ServerDirectory, write_new
from secemb_tools.operate.pairing import public_identity, read_pair


def write_task(task: TaskSpec, out: Path, catalogue: bytes | None = None) -> None:
    """Write `server0` and `server1` under `out`: each secret is in one file only."""
    folders = [out / "server0", out / "server1"]
    if taken := [folder for folder in folders if folder.exists() and any(folder.iterdir())]:
        raise OperationError(f"{taken[0]} is not empty; choose another --out")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for folder in folders:
        write_new(folder / "task.json", task.encode(), mode=PUBLIC)
        if catalogue is not None:
            write_new(folder / CATALOGUE, catalogue, mode=PUBLIC)
    write_new(folders[0] / "ticket.key", private, mode=SECRET)
    write_new(folders[1] / "ticket.pub", public, mode=PUBLIC)


def read_items_file(path: Path, items: int | None) -> tuple[int, bytes]:
    """Return how many items a file lists, and their catalogue; `items`, if given, must equal that number."""
    found = catalogue_from(path)
    if items not in (None, len(found)) or not len(found):
        raise OperationError(f"{path} lists {len(found):,} items; give --items {len(found)}, or omit --items")
    return len(found), found.encode()


def read_task(path: Path) -> TaskSpec:
    """Return the task in a file."""
    return TaskSpec.decode(path.read_bytes().strip())


def relay_key_of(pair_file: Path) -> str:
    """Return the relay identity in server 1's pair file."""
    pair = read_pair(pair_file)
    if pair.relay_key is None:
        raise OperationError(
            f"{pair_file} has no relay_key; export it from server 1's directory with secemb pair export"
        )
    return pair.relay_key


def identity_of(folder: Path) -> str:
    """Return the public half of the identity in server 0's directory."""
    path = ServerDirectory(folder).identity
    identity = public_identity(path)
    if identity is None:
        raise OperationError(
            f"{path} not found; name the directory that `secemb init --role 0` created, or see docs/operating.md for a"
            " directory of an earlier version"
        )
    return identity
