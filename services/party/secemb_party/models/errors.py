"""What can be wrong with a model, its file or its place in the store.

ModelError (a SecEmbError)
├── WeightsError           numbers that are no model of this task: shape, type, NaN, infinity
├── ModelMissingError      the store has no such version
├── ModelConflictError     another model already has this version
└── ModelFileError         a file that cannot be used
    ├── DamagedFileError       truncated, altered or not the format at all
    └── ForeignFileError       in order, but made for another task, version or purpose

Messages name the file and the fix; they never contain a number of the model.
"""

from secemb_shared.errors import SecEmbError


class ModelError(SecEmbError):
    """A model, its file or its place in the store is not in order."""


class WeightsError(ModelError, ValueError):
    """These numbers are no model of this task."""


class ModelMissingError(ModelError, LookupError):
    """The store has no such version."""


class ModelConflictError(ModelError):
    """Another model already has this version: a version is never given twice."""


class ModelFileError(ModelError):
    """A file cannot be used."""


class DamagedFileError(ModelFileError):
    """A file is truncated, altered or not the format it should be."""


class ForeignFileError(ModelFileError):
    """A file was made for another task, version or purpose."""
