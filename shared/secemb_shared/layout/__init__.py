"""The assignment of items to the leaves of slots, and the placement of a device's items."""

from secemb_shared.errors import LayoutError
from secemb_shared.labels import Label
from secemb_shared.layout.geometry import Geometry
from secemb_shared.layout.layouts import BinnedLayout, DirectLayout, Layout, Order
from secemb_shared.layout.loss import loss_bound
from secemb_shared.layout.permutation import Permutation
from secemb_shared.layout.placement import PADDING, Placement
from secemb_shared.layout.planner import DEFAULT_LOSS, Plan, plan

__all__ = [
    "DEFAULT_LOSS",
    "PADDING",
    "BinnedLayout",
    "DirectLayout",
    "Geometry",
    "Layout",
    "Order",
    "Permutation",
    "Placement",
    "Plan",
    "layout_for",
    "loss_bound",
    "plan",
]


def layout_for(geometry: Geometry, *, capacity: int, label: Label) -> Layout:
    """Return the round's layout: direct when one bin spans the catalogue, binned otherwise.

    `label` is the round's, with `NO_SESSION`: all devices of a round share the same assignment.
    """
    if not geometry.is_direct:
        return BinnedLayout(geometry, capacity=capacity, label=label)
    if capacity != geometry.slots_per_bin:
        raise LayoutError("the direct layout must have as many slots as its capacity")
    return DirectLayout(geometry)
