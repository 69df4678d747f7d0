"""Ranking on the device: from its own copy of the public table, or from rows that it reads privately."""

from secemb_sdk.errors import CopyError
from secemb_sdk.recommend.copy import Published, Shelf, TableCopy, sync_steps
from secemb_sdk.recommend.private_read import RowsRead, read_steps
from secemb_sdk.recommend.rank import Scored, rank_steps, recommend
from secemb_shared.messages.table import TableFormat

__all__ = [
    "CopyError",
    "Published",
    "RowsRead",
    "Scored",
    "Shelf",
    "TableCopy",
    "TableFormat",
    "rank_steps",
    "read_steps",
    "recommend",
    "sync_steps",
]
