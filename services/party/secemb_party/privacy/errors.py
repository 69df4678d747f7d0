"""What can go wrong while privacy is accounted for.

AccountingError (a SecEmbError)    a promise that cannot be computed or kept: no noise, a budget that no round fits into
└── AccountantMissingError         dp-accounting is not installed (an ImportError too)
"""

from secemb_shared.errors import SecEmbError


class AccountingError(SecEmbError, ValueError):
    """A promise that cannot be computed or kept."""


class AccountantMissingError(AccountingError, ImportError):
    """The library that computes ε is not installed."""
