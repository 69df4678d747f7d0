"""The boundary between a server and its kernel: one interface, and the engines that implement it."""

from secemb_party.compute.errors import ComputeUnavailableError
from secemb_party.compute.interface import Accepted, Compute, PreparedRound, RoundSum

__all__ = ["Accepted", "Compute", "ComputeUnavailableError", "PreparedRound", "RoundSum"]
