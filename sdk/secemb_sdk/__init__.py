"""The SDK: a device that takes part in training without revealing what it knows about its owner."""

from secemb_sdk.context import Policy, Successor
from secemb_sdk.device import BlockingDevice, Device
from secemb_sdk.errors import (
    DeviceError,
    EnrolmentError,
    HomeError,
    PinError,
    PolicyError,
    SuccessorError,
    TokenExpiredError,
    TokenRevokedError,
)
from secemb_sdk.home.detections import Detection
from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.switches import SwitchReceipt
from secemb_sdk.recommend import Recommendation, Suggestion
from secemb_sdk.round.contribute import Contributed, Dropped, Ended, NotNow, Outcome
from secemb_sdk.round.session import DeviceSession

__all__ = [
    "BlockingDevice",
    "Contributed",
    "Detection",
    "Device",
    "DeviceError",
    "DeviceSession",
    "Dropped",
    "Ended",
    "EnrolmentError",
    "HomeError",
    "NotNow",
    "Outcome",
    "PinError",
    "Policy",
    "PolicyError",
    "Receipt",
    "Recommendation",
    "Successor",
    "SuccessorError",
    "Suggestion",
    "SwitchReceipt",
    "TokenExpiredError",
    "TokenRevokedError",
]
