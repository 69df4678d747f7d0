"""Everything that a home stores about its owner, as plain data."""

from typing import Any

from secemb_sdk.home.detections import as_json
from secemb_sdk.home.records import export_private, export_stage
from secemb_sdk.home.vault import Vault


def export_home(vault: Vault) -> dict[str, Any]:
    """Return everything that this home stores about its owner."""
    with vault.lock:
        identity, private = vault.identity(), vault.private()
        events, texts = vault.events(), vault.texts()
        return {
            "format": 1,
            "task": identity["task"],
            "tasks": vault.chain.tasks,
            "switches": [one.as_json() for one in vault.chain.receipts()],
            "servers": identity["servers"],
            "ratings": [{"item": item, "rating": rating} for item, rating in vault.ratings().items()],
            "events": [
                {"item": item, "at": time}
                for item, time in zip(events.items.tolist(), events.times.tolist(), strict=True)
            ],
            "texts": [{"text": text, "at": time} for text, time in zip(texts.texts, texts.times.tolist(), strict=True)],
            "private": None if private is None else export_private(private),
            "session": export_stage(vault.session()),
            "receipts": [one.as_json() for one in vault.receipts()],
            "detections": as_json(vault.detections()),
        }
