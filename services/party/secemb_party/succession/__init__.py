"""How a server's task goes on: its operator's agreement, and the signed link to the successor."""

from secemb_party.succession.agreement import Agreement
from secemb_party.succession.successions import Successions

__all__ = ["Agreement", "Successions"]
