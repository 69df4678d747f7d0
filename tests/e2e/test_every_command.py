"""Every command: it succeeds, it refuses bad input with the fix, and its JSON has the documented shape."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cases import BAD, CASES, JSON, SUCCESS, Fill
from tests.e2e.cases_elsewhere import ELSEWHERE, WITHOUT_JSON
from tests.e2e.commands import COMMANDS, check_shape, invoke, json_of, read_json, refused
from tests.e2e.place import Place

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("place"))
    yield made
    made.close()


def tried(name: str, kind: str) -> bool:
    """Tell whether this file tries a command in this way."""
    case = CASES.get(name)
    if case is None:
        return False
    return (case.bad if kind == BAD else case.good) is not None and not (kind == JSON and name in WITHOUT_JSON)


def fill(wanted: Fill | None, place: Place) -> list[str]:
    assert wanted is not None
    return [str(word) for word in wanted(place)]


@pytest.mark.parametrize("kind", [SUCCESS, BAD, JSON])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_is_left_out(name: str, kind: str) -> None:
    if kind == JSON and name in WITHOUT_JSON:
        return
    there, elsewhere = tried(name, kind), ELSEWHERE.get((name, kind))
    assert there != (elsewhere is not None), f"try `secemb {name}`, {kind}, in tests/e2e/cases.py, and there alone"
    if elsewhere is not None:
        file, test = elsewhere.split("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), elsewhere


def test_only_commands_that_exist_are_tried() -> None:
    assert CASES.keys() | {name for name, _ in ELSEWHERE} | WITHOUT_JSON == COMMANDS.keys()


@pytest.mark.parametrize("name", [name for name in CASES if tried(name, SUCCESS) and not CASES[name].slow])
def test_success(name: str, place: Place) -> None:
    done = invoke(*name.split(), *fill(CASES[name].good, place))
    assert done.exit_code == 0, done.output
    assert CASES[name].says in done.output


@pytest.mark.parametrize("name", [name for name in CASES if tried(name, JSON) and not CASES[name].slow])
def test_json(name: str, place: Place) -> None:
    json_of(name, *fill(CASES[name].good, place))


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].slow])
def test_success_with_json_for_programs_and_a_table_for_people(name: str, place: Place) -> None:
    done = invoke(*name.split(), *fill(CASES[name].good, place), "--json")
    assert done.exit_code == 0, done.output
    assert CASES[name].says in done.stderr
    check_shape(name, read_json(done.stdout))


@pytest.mark.parametrize("name", [name for name in CASES if tried(name, BAD)])
def test_bad_input_is_refused_with_the_fix(name: str, place: Place) -> None:
    case = CASES[name]
    assert case.fix in refused(*name.split(), *fill(case.bad, place), code=case.code)
