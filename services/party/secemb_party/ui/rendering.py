"""Templates into answers, each with the headers that keep everything from elsewhere out."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from secemb_party.ui import wording
from secemb_party.ui.assets import Assets
from secemb_party.ui.sessions import Session

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PAGES = (
    ("Live", "/ui"),
    ("Rounds", "/ui/rounds"),
    ("Quality", "/ui/quality"),
    ("Privacy", "/ui/privacy"),
    ("Partner", "/ui/partner"),
    ("Model", "/ui/model"),
    ("Capacity", "/ui/capacity"),
)


class Renderer:
    """The templates of one server's page."""

    def __init__(self, assets: Assets, *, role: int, task: str) -> None:
        self._environment = Environment(
            loader=PackageLoader("secemb_party.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "number": wording.number,
            "size": wording.size,
            "duration": wording.duration,
            "day": wording.day,
            "digest": wording.digest,
            "short": partial(wording.digest, groups=4),
        }
        self._environment.globals |= {"asset": assets.address, "pages": PAGES, "role": role, "task": task}

    def answer(
        self,
        template: str,
        facts: Mapping[str, Any],
        *,
        now: float,
        session: Session | None = None,
        status: int = 200,
    ) -> HTMLResponse:
        """Return a page or a part of one."""
        text = self._render(template, facts, now=now, session=session)
        # With "no-referrer" browsers send "Origin: null" with forms, and the login could not tell https behind a proxy.
        headers = {"content-security-policy": POLICY, "cache-control": "no-store", "referrer-policy": "same-origin"}
        return HTMLResponse(text, status, headers)

    def line(self, template: str, facts: Mapping[str, Any], *, now: float) -> str:
        """Return a part of a page on one line, as streams want it."""
        return " ".join(self._render(template, facts, now=now, session=None).split())

    def _render(self, template: str, facts: Mapping[str, Any], *, now: float, session: Session | None) -> str:
        spoken = {"moment": wording.moment, "when": wording.when, "ago": wording.relative}
        times = {name: partial(say, now=now) for name, say in spoken.items()}
        return self._environment.get_template(template).render(**facts, **times, now=now, session=session)
