"""What can go wrong while privacy is accounted for.

SecEmbError
├── AccountingError                a promise that cannot be computed or kept: no noise, a budget that no round fits into
│   └── AccountantMissingError         dp-accounting is not installed (an ImportError too)
└── BudgetSpentError               one more round would go beyond the task's budget
"""

from secemb_shared.errors import SecEmbError


class AccountingError(SecEmbError, ValueError):
    """A promise that cannot be computed or kept."""


class AccountantMissingError(AccountingError, ImportError):
    """The library that computes ε is not installed."""


class BudgetSpentError(SecEmbError):
    """One more round of this kind would go beyond the task's privacy budget."""
