"""What a plan says: limits with their names, figures that follow the task, and units that people think in."""

from dataclasses import replace
from typing import Any

import pytest

from secemb_party.prepared_rounds import LARGE_TABLE, kept_rounds
from secemb_tools.plan import Cost, PlanInput, cost, describe


def plan(**changes: Any) -> Cost:
    """Return the plan for a small catalogue, or one that differs."""
    given: dict[str, Any] = {
        "items": 2000, "capacity": 50, "width": 65, "dense_size": 0, "cohort": 100, "fleet": 1000,
        "placement_loss": 1e-6, "ring_bits": 32, "memory": 4.0,
    }  # fmt: skip
    return cost(PlanInput(**given | changes), seconds=0.02)


def test_a_small_task_is_possible() -> None:
    found = plan()
    assert found["cannot"] == []
    assert describe(found)["verdict"] == "possible"


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"memory": 0.2}, "memory: "),
        ({"upload_seconds": 1, "cohort": 1_000_000, "clip": 0.01}, "time: "),
        ({"cohort": 20_000, "upload_seconds": 10_000}, "ring overflow: "),
    ],
)
def test_a_limit_that_is_exceeded_is_named_alone(changes: dict[str, Any], limit: str) -> None:
    found = plan(**changes)
    assert [one.startswith(limit) for one in found["cannot"]] == [True], found["cannot"]
    assert describe(found)["verdict"].startswith(f"cannot: {limit}")


def test_amazon_fits_into_eight_gigabytes_and_not_into_four() -> None:
    given = PlanInput.of(
        "Amazon", items=None, capacity=None, width=65, dense_size=0, cohort=10_000, fleet=6_775_277,
        placement_loss=1e-6, ring_bits=32, memory=8.0, optimiser="lazy-adam", devices_per_day=1_000_000,
        clip=1.0, upload_seconds=86_400,
    )  # fmt: skip
    found = cost(given, seconds=0.02)
    assert found["items"] == 9_267_503
    assert not [one for one in found["cannot"] if one.startswith("memory")]
    small = cost(replace(given, memory=4.0, devices_per_day=None), seconds=0.02)
    assert [one for one in small["cannot"] if one.startswith("memory")]
    assert small["cluster"] is None
    grown = found["cluster"]
    assert grown is not None
    assert grown["rounds_per_day"] == 100
    assert grown["peer_bytes_per_day"] == 100 * found["peer_bytes_per_round"]
    assert grown["device_bytes_in_per_day"] == 1_000_000 * found["bytes_up_per_device"]
    busy = (grown["cores_to_answer"] + grown["cores_to_add"]) * 86_400
    assert busy == pytest.approx(1_000_000 * found["kernel_seconds_per_device"])
    assert "a day up" in describe(found)["devices to both servers"]


def test_ring_and_width_count_where_they_should() -> None:
    small, wide = plan(items=20_000, capacity=50), plan(items=20_000, capacity=50, ring_bits=64)
    assert wide["peer_bytes_per_round"] - small["peer_bytes_per_round"] == 4 * 20_000 * 65
    assert wide["memory_bytes_server0"] > small["memory_bytes_server0"]
    slow, fast = (plan(link=link)["seconds_to_send_share"] for link in (10, 1000))
    assert slow - fast == pytest.approx(4 * 2000 * 65 * 8 / 1e6 * (1 / 10 - 1 / 1000))  # what TLS costs is the same


def test_the_stages_after_the_seal_add_up() -> None:
    found = plan()
    stages = (
        "add",
        "share",
        "add",
        "share",
        "send_share",
        "step",
        "send_model",
        "publish",
    )  # one server after the other
    total = sum(found[f"seconds_to_{name}"] for name in stages)  # type: ignore[literal-required]
    assert found["seconds_from_seal_to_publish"] == pytest.approx(total)


def test_the_plan_counts_as_many_tables_as_a_server_keeps() -> None:
    assert (kept_rounds(LARGE_TABLE), kept_rounds(LARGE_TABLE + 1)) == (2, 1)
