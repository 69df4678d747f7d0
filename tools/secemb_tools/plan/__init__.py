"""What a task will cost, before it is created: bytes, memory, disk and time, and what is impossible."""

from secemb_tools.plan.plan import Cost, PlanInput, cost, describe

__all__ = ["Cost", "PlanInput", "cost", "describe"]
