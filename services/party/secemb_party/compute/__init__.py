"""The seam between a server and its kernel: one interface, and the engines that implement it."""

from secemb_party.compute.interface import Answer, Compute, PreparedRound, RoundSum

__all__ = ["Answer", "Compute", "PreparedRound", "RoundSum"]
