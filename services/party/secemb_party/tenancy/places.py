"""The files of a server's tasks: the one that the settings name, and a folder for each further one.

    data_dir/tasks/<task id>/catalogue.csv    ids and titles of the items, if the task has a catalogue
    data_dir/tasks/<task id>/task.json        the task; written last, so a folder with it is complete

Whether a task runs is in the ledger (secemb_party.ledger.lifecycle), not here.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from secemb_party.storage.copies import catalogue_path
from secemb_party.storage.files import make_folder, write_file
from secemb_party.tenancy.errors import TaskControlError
from secemb_shared.catalogue import FILE, digest_of
from secemb_shared.errors import SpecError
from secemb_shared.messages import TaskSpec

FOLDER, TASK = "tasks", "task.json"  # the folder is in data_dir
_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Where the files of one task are."""

    task: TaskSpec
    file: Path
    catalogue: Path
    in_settings: bool


class TaskPlaces:
    """The tasks of which a server has the files."""

    def __init__(self, folder: Path, named: Path, catalogue: Path | None = None) -> None:
        self._folder, self._named, self._catalogue = folder / FOLDER, named, catalogue

    def all(self) -> dict[bytes, TaskPlace]:
        """Return all tasks by id: first the one that the settings name."""
        task = TaskSpec.decode(self._named.read_bytes().strip())
        found = {task.task_id: TaskPlace(task, self._named, catalogue_path(self._named, self._catalogue), True)}
        for path in sorted(self._folder.glob(f"*/{TASK}")):
            if not _ID.fullmatch(path.parent.name):
                continue
            further = TaskSpec.decode(path.read_bytes().strip())
            if further.task_id.hex() != path.parent.name:
                raise TaskControlError(f"{path} is not the file of this task; remove its folder, then start it again")
            found.setdefault(further.task_id, TaskPlace(further, path, path.with_name(FILE), False))
        return found

    def add(self, spec: bytes, catalogue: bytes | None) -> TaskSpec:
        """Store the files of a task; repeating it changes nothing."""
        try:
            task = TaskSpec.decode(spec.strip())
        except SpecError as error:
            raise TaskControlError(f"this is not a task: {error}") from None
        if task.task_id in self.all():
            return task
        if task.catalogue and (catalogue is None or digest_of(catalogue) != task.catalogue):
            raise TaskControlError(
                f"the task has a catalogue; keep the {FILE} that `secemb task create` wrote beside its file"
            )
        folder = self._folder / task.task_id.hex()
        make_folder(self._folder)
        make_folder(folder)
        if task.catalogue and catalogue is not None:
            write_file(folder / FILE, catalogue)
        write_file(folder / TASK, spec.strip())
        return task

    def remove(self, task_id: bytes) -> None:
        """Remove the folder of a task; the file that the settings name stays."""
        folder = self._folder / task_id.hex()
        (folder / TASK).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
