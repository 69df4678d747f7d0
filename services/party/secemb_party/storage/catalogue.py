"""The catalogue of a task: the file of ids and titles that devices fetch, checked once when the server starts."""

import hashlib
import os
from pathlib import Path

from secemb_party.errors import SettingsError
from secemb_party.storage.table_copies import Body
from secemb_shared.catalogue import FILE, LARGEST
from secemb_shared.messages import TaskSpec


def catalogue_path(task_file: Path, given: Path | None) -> Path:
    """Return where a server has its catalogue: beside the task, unless the settings name another place."""
    return given or task_file.with_name(FILE)


def open_catalogue(task: TaskSpec, path: Path) -> Body | None:
    """Return the file that the task names by its digest, or None if it names none."""
    if not task.catalogue:
        return None
    fix = f"put the {FILE} that `secemb task create` wrote there, or name it in task.catalogue_file"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise SettingsError(f"the task has a catalogue, but {path} cannot be read; {fix}") from None
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST or hashlib.file_digest(file, "sha256").hexdigest() != task.catalogue:
            raise SettingsError(f"{path} is not the catalogue of this task; {fix}")
        return Body(os.dup(file.fileno()), size=size, sha256=task.catalogue)
