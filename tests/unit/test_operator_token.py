"""Nothing of the operator's interface is told to who has not the operator's token."""

import re

import pytest
from tests.unit.operator_desk import TOKEN, Desk, a_desk

pytestmark = pytest.mark.asyncio


def operator_calls(desk: Desk, role: int) -> list[tuple[str, str]]:
    """Return every call that the description has, with numbers where it has names."""
    paths = desk.apps[role].openapi()["paths"]
    return [
        (method, re.sub(r"\{[a-z]+\}", "0", path))
        for path, operations in paths.items()
        for method in operations
        if path.startswith("/v1/operator/")
    ]


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer x", f"Bearer {TOKEN}x", f"Basic {TOKEN}"])
async def test_without_the_token_every_call_is_refused(role: int, token: str | None) -> None:
    async with a_desk() as desk, desk.browser(role) as browser:
        calls = operator_calls(desk, role)
        assert len(calls) >= (9 if role == 0 else 7)
        headers = {} if token is None else {"authorization": token}
        for method, path in calls:
            answer = await browser.request(method, path, params={"seen": 1}, headers=headers)
            assert answer.status_code == 401, (method, path)
            assert answer.json()["type"] == "urn:secemb:problem:unauthorized"
