"""The estimated cost of a task before it is created: bytes, memory, disk and time, and exceeded limits."""

from secemb_tools.plan.plan import Cost, PlanInput, cost, describe

__all__ = ["Cost", "PlanInput", "cost", "describe"]
