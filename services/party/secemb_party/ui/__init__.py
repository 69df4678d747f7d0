"""The operator pages, `/ui`, rendered by this server without files from other sites.

They show rounds, versions, certificates and figures of the process, and nothing about a single device. Pages are
readable without scripts; scripts refresh parts of them and draw charts from their tables.
"""

from secemb_party.ui.pages import ui_routes
from secemb_party.ui.server_facts import Side, Surroundings

__all__ = ["Side", "Surroundings", "ui_routes"]
