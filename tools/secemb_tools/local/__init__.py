"""Both servers on this machine, each in its own process: for demonstrations and measurements."""

from secemb_tools.local.pair import Pair
from secemb_tools.local.process import Service, Usage

__all__ = ["Pair", "Service", "Usage"]
