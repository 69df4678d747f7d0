"""What `import secemb_sdk` gives and what it does not load."""

import subprocess
import sys

import secemb_sdk

NAMES = [
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


def test_the_public_names_are_these() -> None:
    assert secemb_sdk.__all__ == NAMES


def test_every_public_name_is_documented() -> None:
    for name in set(NAMES) - {"Outcome"}:
        assert getattr(secemb_sdk, name).__doc__


def test_the_import_loads_no_torch_no_server_and_no_http_library() -> None:
    program = "import secemb_sdk, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "fastapi", "starlette", "pydantic", "sqlalchemy", "httpx", "secemb_party", "secemb_tools"}
    assert not heavy & set(loaded)
