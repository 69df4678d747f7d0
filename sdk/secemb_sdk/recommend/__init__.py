"""Ranking on the device: from its own copy of the public table, or from rows that it reads privately."""

from secemb_sdk.recommend.rank import Scored, rank_candidates, recommend_items
from secemb_shared.messages.table import TableFormat

__all__ = ["Scored", "TableFormat", "rank_candidates", "recommend_items"]
