"""What can be wrong with rating sets."""

from secemb_shared.errors import SecEmbError


class DatasetError(SecEmbError, ValueError):
    """Files that do not hold a rating set that is known here."""
