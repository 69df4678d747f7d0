"""A ledger as a file: from one database to another."""

from pathlib import Path

from typing_extensions import TypedDict

from secemb_party.ledger import Ledger
from secemb_party.settings import Settings
from secemb_party.storage.files import whole_file
from secemb_tools.errors import OperationError


class LedgerFile(TypedDict):
    """An exported ledger."""

    file: str
    rows: int  # of all tables


async def upgrade_ledger(settings: Settings) -> None:
    """Create the ledger's tables, or upgrade them to this version's schema."""
    async with await open_or_create(settings) as ledger:
        await ledger.ping()


async def export_ledger(settings: Settings, path: Path) -> LedgerFile:
    """Write the ledger to a new file, as of one moment; the server may run."""
    async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
        refuse_to_overwrite(path)
        with whole_file(path, mode=0o600) as file:
            return _described(path, await ledger.write_archive(file))


async def import_ledger(settings: Settings, path: Path) -> LedgerFile:
    """Fill an empty ledger with what was exported from another one."""
    with path.open("rb") as file:
        async with await open_or_create(settings) as ledger:
            return _described(path, await ledger.read_archive(file))


async def open_or_create(settings: Settings) -> Ledger:
    """Open the ledger; make its tables if there are none."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await Ledger.open(settings.ledger_url(), migrate=True)


def refuse_to_overwrite(path: Path) -> None:
    """Refuse a path at which there is something already."""
    if path.exists():
        raise OperationError(f"{path} exists and is not overwritten; name another file")


def _described(path: Path, tables: dict[str, int]) -> LedgerFile:
    return {"file": str(path), "rows": sum(tables.values())}
