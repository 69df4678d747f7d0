"""What can be wrong with what a device copies to rank by itself.

DeviceError
└── CopyError        a copy is damaged, or not the one that both servers publish; what was there before stays in use
"""

from secemb_sdk.errors import DeviceError


class CopyError(DeviceError):
    """A copy is damaged, or not the one that both servers publish."""
