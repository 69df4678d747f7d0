"""Operator tokens: each has a name and a role, and opens what its role allows until it expires or is revoked."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.unit.operator_desk import ENROL, READ_ONLY, TOKEN, Desk, a_desk, an_operator, form_token
from tests.unit.test_operator_token import operator_calls

from secemb_party.errors import ForbiddenError, OperatorTokenError, SettingsError, UnauthorizedError
from secemb_party.operators import Operator, OperatorRole, Operators, encode

NOW = 1000.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "operators.json"
    path.write_bytes(encode([an_operator("alice", "a", "admin"), an_operator("bob", "b", "read-only")]))
    path.chmod(0o640)
    return path


def named(name: str, **changes: object) -> Operator:
    return replace(an_operator(name, name, "read-only"), **changes)  # type: ignore[arg-type]


def test_a_role_includes_itself_and_admin_includes_all() -> None:
    including = {(one, needed) for one in OperatorRole for needed in OperatorRole if one.includes(needed)}
    assert including == {(one, one) for one in OperatorRole} | {(OperatorRole.ADMIN, one) for one in OperatorRole}


def test_a_token_is_known_by_its_hash_and_needs_the_role(file: Path) -> None:
    operators = Operators(file)
    assert operators.require("a", OperatorRole.ADMIN, NOW).name == "alice"
    assert operators.require("b", OperatorRole.READ_ONLY, NOW).name == "bob"
    with pytest.raises(
        ForbiddenError, match="needs a token with the role admin, but this token has the role read-only"
    ):
        operators.require("b", OperatorRole.ADMIN, NOW)
    for token in ("", "c", "a ", operators.all()[0].token_hash):
        with pytest.raises(UnauthorizedError, match="secemb operator add"):
            operators.require(token, OperatorRole.READ_ONLY, NOW)
    assert operators.all()[0].token_hash not in repr(operators) + repr(operators.all())


def test_a_token_opens_nothing_after_it_expires(file: Path) -> None:
    operators = Operators(file)
    operators.add(named("carol", expires_at=NOW))
    assert operators.find("carol", NOW - 0.1) is not None
    assert operators.find("carol", NOW) is None


def test_another_process_adds_and_revokes_while_this_one_runs(file: Path) -> None:
    running, command = Operators(file), Operators(file)
    command.add(named("carol"))
    assert running.find("carol", NOW) is not None
    assert command.revoke("carol", NOW).revoked_at == NOW
    assert running.find("carol", NOW) is None
    assert command.revoke("carol", NOW + 9).revoked_at == NOW
    assert file.stat().st_mode & 0o777 == 0o640  # as the operator had set it


def test_a_name_is_used_once_even_after_revocation(file: Path) -> None:
    operators = Operators(file)
    operators.revoke("bob", NOW)
    for name, words in (
        ("bob", "names cannot be reused"),
        ("", "1 to 100"),
        ("a\nb", "printable"),
        (" x", "leading or trailing spaces"),
    ):
        with pytest.raises(OperatorTokenError, match=words):
            operators.add(named(name))
    with pytest.raises(OperatorTokenError, match="secemb operator list"):
        operators.revoke("nobody", NOW)
    assert [one.name for one in operators.all()] == ["alice", "bob"]


@pytest.mark.parametrize("content", ["", "{}", '[{"name": "x"}]', "[1]"])
def test_a_damaged_file_opens_no_door(file: Path, content: str) -> None:
    operators = Operators(file)
    file.write_text(content or "\n")
    os.utime(file, ns=(1, 1))
    if content == "{}":
        assert operators.find("a", NOW) is None
        return
    with pytest.raises(SettingsError, match="restore it"):
        operators.find("a", NOW)


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_a_read_only_token_reads_everything_and_changes_nothing(desk: Desk, role: int) -> None:
    async with desk.browser(role) as browser:
        for method, path in operator_calls(desk, role):
            if "events" in path:
                continue
            answer = await browser.request(method, path, params={"seen": 1}, headers=bearer(READ_ONLY))
            assert (answer.status_code == 403) is (method != "get"), (method, path)
        assert await desk.pair.parties[role].ledger.actions() == []


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_a_token_for_enrolment_opens_neither_the_page_nor_other_calls(desk: Desk, role: int) -> None:
    async with desk.browser(role) as browser:
        for method, path in operator_calls(desk, role):
            if "tokens" not in path:
                answer = await browser.request(method, path, params={"seen": 1}, headers=bearer(ENROL))
                assert answer.status_code == 403, (method, path)
        assert (await browser.post("/ui/login", data={"token": ENROL})).status_code == 401


@pytest.mark.asyncio
async def test_a_change_is_recorded_with_who_and_why_and_never_the_token(desk: Desk) -> None:
    async with desk.browser(0) as browser:
        path = "/v1/operator/models/0/rollback"
        for reason in ("x" * 501, "a\nb", " ", "\0"):
            asked = await browser.post(path, params={"seen": 1, "reason": reason}, headers=bearer(TOKEN))
            assert asked.status_code == 400
        asked = await browser.post(path, params={"seen": 1, "reason": "it got worse"}, headers=bearer(TOKEN))
        assert asked.status_code == 202
        answer = await browser.get("/v1/operator/actions", headers=bearer(READ_ONLY))
    (done,) = answer.json()
    assert (done["by"], done["what"], done["reason"]) == ("admin", "rollback", "it got worse")
    assert (done["at"], done["data"]) == (desk.pair.clock(), {"seen": 1, "source": 0})
    assert TOKEN not in answer.text


@pytest.mark.asyncio
async def test_a_read_only_login_has_no_buttons_and_its_forged_forms_are_refused(desk: Desk) -> None:
    async with desk.logged_in(0, READ_ONLY) as browser:
        page = await browser.get("/ui/model")
        assert "Roll back" not in page.text
        assert "Logged in as onlooker, read-only." in page.text
        assert (await browser.get("/ui/model/0/rollback")).status_code == 403
        fields = {"form_token": await form_token(browser), "seen": "1", "sure": "yes"}
        forged = await browser.post("/ui/model/0/rollback", data=fields)
        assert forged.status_code == 403
        assert "this login is read-only" in forged.text
        assert await desk.pair.parties[0].ledger.rollbacks(desk.pair.task.task_id) == []
        assert (await browser.post("/ui/logout", data=fields)).status_code == 303
    async with desk.logged_in(0) as browser:
        assert "Roll back" in (await browser.get("/ui/model")).text
        fields = {"form_token": await form_token(browser), "seen": "1", "sure": "yes", "reason": " got\0 \n worse "}
        assert (await browser.post("/ui/model/0/rollback", data=fields)).status_code == 303
    (done,) = await desk.pair.parties[0].ledger.actions()
    assert (done.by, done.reason) == ("admin", "got worse")


@pytest.mark.asyncio
async def test_revoking_a_token_ends_its_logins(desk: Desk) -> None:
    async with desk.logged_in(0, READ_ONLY) as browser, desk.logged_in(0) as other:
        desk.operators.revoke("onlooker", NOW)
        assert (await browser.get("/ui")).status_code == 303
        assert (await other.get("/ui")).status_code == 200
        refused = await browser.get("/v1/operator/overview", headers=bearer(READ_ONLY))
        assert refused.status_code == 401
        assert (await browser.post("/ui/login", data={"token": READ_ONLY})).status_code == 401
