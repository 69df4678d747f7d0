"""Both services on this machine, each in a process of its own: for demonstrations and measurements."""

from secemb_tools.local.pair import Pair
from secemb_tools.local.service import Service, Usage

__all__ = ["Pair", "Service", "Usage"]
