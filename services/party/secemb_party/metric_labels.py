"""Labels of metrics: words from our own source code, templates of routes, and short ids of tasks.

Nothing in them can name a device.
"""

import re
from functools import cache

_WORD = re.compile(r"[a-z][a-z_-]{0,39}")
_TEMPLATE = re.compile(r"unmatched|/|(/([a-z][a-z0-9_.-]{0,30}|\{[a-z_:]+\}))+")


@cache  # there are few labels, and they do not change
def word(label: str) -> str:
    """Return the label if it is a word, or raise."""
    if not _WORD.fullmatch(label):
        raise ValueError("a metric label must be a short lower-case word, never an id or a value")
    return label


@cache
def template(route: str) -> str:
    """Return the label if it is the template of a route, or raise."""
    if not _TEMPLATE.fullmatch(route):
        raise ValueError("requests must be counted by route template, not by path")
    return route


def short_id(task_id: bytes) -> str:
    """Return the first digits of a task's id, as metrics, logs and pages show it."""
    return task_id.hex()[:8]
