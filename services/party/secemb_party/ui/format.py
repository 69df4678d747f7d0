"""Numbers, sizes and times for operators: with units and no more precision than useful.

Times are in UTC; a script on the page converts them to the reader's time zone.
"""

from datetime import datetime

from markupsafe import Markup

from secemb_party.ui.server_facts import utc

_UNITS = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separators; a dash if it is unknown."""
    return "–" if value is None else f"{value:,.{digits}f}"


def size(count: float | None) -> str:
    """Return bytes in the unit that keeps the number short."""
    if count is None:
        return "–"
    step = 0
    while count >= 999.5 and step < len(_UNITS) - 1:
        count, step = count / 1000, step + 1
    return f"{count:.0f} {_UNITS[step]}" if step == 0 or count >= 99.5 else f"{count:.1f} {_UNITS[step]}"


def duration(seconds: float | None) -> str:
    """Return a duration in the one or two largest units."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 or seconds == 0 else f"{1000 * seconds:.2f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, below, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below if whole < 2 * unit or unit < 86_400 else 0
            return f"{whole // unit} {name} {rest} {smaller}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def relative(at: float, now: float) -> str:
    """Return how long ago something was, or how far ahead it is."""
    away = at - now
    if abs(away) < 1:
        return "now"
    # Tenths of a second are irrelevant here.
    words = duration(max(10.0, abs(away))) if abs(away) >= 10 else f"{abs(away):.0f} s"
    return f"in {words}" if away > 0 else f"{words} ago"


def moment(at: float | None, now: float) -> Markup:
    """Return a time in UTC, and how long ago it was."""
    if at is None:
        return Markup('<span class="quiet">–</span>')
    when = utc(at)
    return Markup('<time datetime="{}">{} <span class="quiet">{}</span></time>').format(
        when.isoformat(timespec="seconds"), _clock_face(when, utc(now)), relative(at, now)
    )


def when(at: float, now: float) -> Markup:
    """Return only the time of day, for lists."""
    return Markup('<time datetime="{}">{}</time>').format(
        utc(at).isoformat(timespec="seconds"), _clock_face(utc(at), utc(now))
    )


def day(at: float) -> Markup:
    """Return a date."""
    when = utc(at)
    return Markup('<time class="day" datetime="{}">{}</time>').format(
        when.isoformat(timespec="seconds"), f"{when.day} {when:%B %Y}"
    )


def _clock_face(when: datetime, now: datetime) -> str:
    if when.date() == now.date():
        return f"{when:%H:%M:%S}"
    return f"{when.day} {when:%b %H:%M}" if when.year == now.year else f"{when.day} {when:%b %Y}"


def digest(value: bytes | str | None, *, groups: int = 16) -> Markup:
    """Return a digest in groups of four, which is easier to read aloud."""
    if not value:
        return Markup('<span class="quiet">–</span>')
    text = value.hex() if isinstance(value, bytes) else value
    parts = [text[at : at + 4] for at in range(0, len(text), 4)]
    shown = " ".join(parts[:groups]) + ("…" if groups < len(parts) else "")
    return Markup('<code class="digest">{}</code>').format(shown)
