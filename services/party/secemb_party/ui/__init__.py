"""The operator's page, `/ui`: what this server knows, drawn on this server, without a file from anywhere else.

It shows rounds, versions, certificates and figures of the process, and nothing about a single device. Pages are made
here and can be read without scripts; scripts renew parts of them and draw charts from the tables that are there anyway.
"""

from secemb_party.ui.pages import ui_routes
from secemb_party.ui.server_facts import Side, Surroundings

__all__ = ["Side", "Surroundings", "ui_routes"]
