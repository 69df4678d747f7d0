"""Ranking on the device: from its own copy of the public table, or from rows that it reads privately."""

from secemb_sdk.ranking.asking import Ask
from secemb_sdk.ranking.errors import CopyError
from secemb_sdk.ranking.ranking import rank_steps
from secemb_sdk.ranking.reading import RowsRead, read_steps
from secemb_sdk.ranking.recommending import recommend
from secemb_sdk.ranking.scoring import Scored
from secemb_sdk.ranking.shelf import Shelf
from secemb_sdk.ranking.sync import Published, sync_steps
from secemb_sdk.ranking.table_copy import TableCopy
from secemb_shared.messages.table import TableFormat

__all__ = [
    "Ask",
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
