"""Web pages of other origins: none may call a server unless its settings name the origin."""

from collections.abc import Sequence

import httpx
import pytest
from tests.integration.small_app import routes
from tests.unit.test_settings import install

from secemb_party.errors import SettingsError
from secemb_party.http.app import new_app
from secemb_party.http.middleware import Requests
from secemb_party.metrics import Metrics
from secemb_party.settings import load_settings

pytestmark = pytest.mark.asyncio
PAGE, OTHER = "https://films.example.org", "https://films.example.org.evil.example"
PREFLIGHT = {
    "access-control-request-method": "PUT",
    "access-control-request-headers": "content-type,secemb-proof,secemb-ticket",
}


async def ask(
    method: str, origin: str, *, allowed: Sequence[str], path: str = "cached", **headers: str
) -> httpx.Response:
    app = new_app("Small", "For tests.", metrics=Metrics(), routers=[routes()], allowed_origins=allowed)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        return await client.request(method, f"/v1/things/1/{path}", headers={"origin": origin, **headers})


def granted(response: httpx.Response) -> set[str]:
    return {name for name in response.headers if name.startswith("access-control-")}


async def test_without_a_list_no_page_is_allowed_and_nothing_is_mounted() -> None:
    response = await ask("GET", PAGE, allowed=())
    assert (response.status_code, granted(response)) == (200, set())
    assert granted(await ask("OPTIONS", PAGE, allowed=(), **PREFLIGHT)) == set()
    app = new_app("Small", "For tests.", metrics=Metrics(), routers=[routes()])
    assert [str(one.cls) for one in app.user_middleware] == [str(Requests)]


async def test_a_named_page_may_send_what_devices_send_and_read_what_they_read() -> None:
    asked = await ask("OPTIONS", PAGE, allowed=(PAGE,), **PREFLIGHT)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert {"secemb-ticket", "secemb-proof", "authorization", "range", "if-none-match"} <= {
        one.strip().lower() for one in asked.headers["access-control-allow-headers"].split(",")
    }
    assert "access-control-allow-credentials" not in asked.headers
    answer = await ask("GET", PAGE, allowed=(PAGE,))
    assert (answer.headers["access-control-allow-origin"], answer.headers["vary"]) == (PAGE, "Origin")
    exposed = {one.strip() for one in answer.headers["access-control-expose-headers"].split(",")}
    assert exposed == {"content-range", "date", "etag", "retry-after", "secemb-copy-sha256"}
    refused = await ask("GET", PAGE, allowed=(PAGE,), path="errors/busy")
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (429, PAGE)


@pytest.mark.parametrize("origin", [OTHER, "null", "http://films.example.org", f"{PAGE}:8443"])
async def test_any_other_page_is_refused(origin: str) -> None:
    asked = await ask("OPTIONS", origin, allowed=(PAGE,), **PREFLIGHT)
    assert asked.status_code == 400
    assert "access-control-allow-origin" not in asked.headers
    assert "access-control-allow-origin" not in (await ask("GET", origin, allowed=(PAGE,))).headers


async def test_a_list_is_of_origins_and_of_nothing_wider(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = install(1, tmp_path_factory.mktemp("server"))
    variable = {"SECEMB_DEVICES__ALLOWED_ORIGINS": f"{PAGE} http://localhost:5173"}
    assert load_settings(settings, variable).devices.allowed_origins == (PAGE, "http://localhost:5173")
    assert load_settings(settings, {}).devices.allowed_origins == ()
    for wider in ("*", "https://*.example.org", f"{PAGE}/app", "films.example.org", "null"):
        with pytest.raises(SettingsError, match="each one is named"):
            load_settings(settings, {"SECEMB_DEVICES__ALLOWED_ORIGINS": wider})
