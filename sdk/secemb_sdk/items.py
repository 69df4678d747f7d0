"""Items as apps name them: a row of the catalogue, or an external id, which is looked up on the device."""

from collections.abc import Iterable
from typing import TypeAlias

from secemb_sdk.context import Context
from secemb_sdk.errors import GoneError, RatingError
from secemb_sdk.home.catalogue_file import CatalogueFile
from secemb_shared.catalogue import Catalogue
from secemb_shared.errors import CatalogueError

Item: TypeAlias = int | str  # a row, or an external id


class Items:
    """The items of a device's current task. Looking one up asks nobody."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._read: tuple[str, Catalogue] | None = None  # the digest of the catalogue in memory

    def row(self, item: Item) -> int:
        """Return the row of an item."""
        if not isinstance(item, str):
            return item
        try:
            return self._catalogue().row_of(item)
        except CatalogueError as error:
            raise RatingError(str(error)) from None

    def rows(self, items: Iterable[Item], task: bytes) -> list[int]:
        """Return the rows of items that were named while the device belonged to `task`."""
        named = list(items)
        if self._context.current_task != task and not all(isinstance(item, str) for item in named):
            raise GoneError("the task has a successor, in which rows have other numbers; look the items up again")
        return [self.row(item) for item in named]

    def _catalogue(self) -> Catalogue:
        task = self._context.vault.task()
        if task is None or not task.catalogue:
            raise RatingError("this task has no catalogue of external ids that this device knows of; use row numbers")
        if self._read is None or self._read[0] != task.catalogue:
            file = CatalogueFile(self._context.vault.public_folder, task)
            if not file.is_here():
                raise RatingError("the catalogue is not on this device yet; call catalogue() once while online")
            self._read = task.catalogue, file.load()
        return self._read[1]
