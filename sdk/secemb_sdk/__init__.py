"""The SDK: a device that takes part in training, and keeps what it knows about its owner to itself."""

from secemb_sdk.client import BlockingDevice, Device
from secemb_sdk.detections import Detection
from secemb_sdk.errors import DeviceError, EnrolmentError, HomeError, PinError, PolicyError
from secemb_sdk.flow import DeviceSession
from secemb_sdk.outcome import Contributed, Dropped, NotNow, Outcome
from secemb_sdk.policy import Policy
from secemb_sdk.receipts import Receipt

__all__ = [
    "BlockingDevice",
    "Contributed",
    "Detection",
    "Device",
    "DeviceError",
    "DeviceSession",
    "Dropped",
    "EnrolmentError",
    "HomeError",
    "NotNow",
    "Outcome",
    "PinError",
    "Policy",
    "PolicyError",
    "Receipt",
]
