"""Ranking on the device: from its own copy of the public table, or from rows that it reads privately."""

from secemb_sdk.recommend.catalogue import Recommendation, find_catalogue
from secemb_sdk.recommend.rank import Scored, rank_candidates, recommend_items
from secemb_sdk.recommend.suggest import Suggestion, suggest_words
from secemb_shared.messages.table import TableFormat

__all__ = [
    "Recommendation",
    "Scored",
    "Suggestion",
    "TableFormat",
    "find_catalogue",
    "rank_candidates",
    "recommend_items",
    "suggest_words",
]
