"""The rules of the house that a linter does not know.

A rule is a function from a module's dotted name and source text to sentences that say what is wrong with it.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

Rule = Callable[[str, str], list[str]]

# Who may import whom, besides itself.
ARROWS: dict[str, set[str]] = {
    "secemb_shared": set(),
    "secemb_sdk": {"secemb_shared"},
    "secemb_party": {"secemb_shared"},
    "secemb_server0": {"secemb_shared", "secemb_party"},
    "secemb_server1": {"secemb_shared", "secemb_party"},
    "secemb_tools": {"secemb_shared", "secemb_sdk", "secemb_party", "secemb_server0", "secemb_server1"},
    # Measurements use everything, and nothing uses them.
    "secemb_lab": {
        "secemb_shared",
        "secemb_sdk",
        "secemb_party",
        "secemb_server0",
        "secemb_server1",
        "secemb_tools",
    },
}
SERVICES = {"secemb_party", "secemb_server0", "secemb_server1"}
# What the protocol has no use for.
NETWORK = {"aiohttp", "anyio", "asyncio", "requests", "select", "selectors", "socket", "socketserver", "ssl", "urllib"}
FRAMEWORKS = {"fastapi", "starlette", "uvicorn", "uvloop", "websockets"}
FILES = {"fileinput", "glob", "io", "logging", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"}
CLOCKS = {"datetime", "sched", "time"}
CONCURRENCY = {"concurrent", "multiprocessing", "queue", "signal", "subprocess", "threading"}
OUTSIDE_WORLD = NETWORK | FRAMEWORKS | FILES | CLOCKS | CONCURRENCY | {"random"}
OUTSIDE_CALLS = {"breakpoint", "input", "open", "print"}
NAMELESS = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
# Words of the field that happen to end like an activity.
NOUNS = {"pacing", "pairing", "ranking", "rating", "ring", "sharing"}
# A name that several modules have, and the one sense in which all of them have it.
SENSES = {
    "app": "a FastAPI application put together",
    "catalogue": "items by row, with their ids and titles",
    "catalogues": "the paper's catalogues",
    "control": "how operators steer a task",
    "device": "one device",
    "devices": "many devices in one process",
    "errors": "the error tree of a package",
    "events": "what happened, for the operator",
    "files": "files that are old or new, never in between",
    "fleet": "many devices that call real servers",
    "interface": "the protocol of a seam",
    "join": "taking a place in a round",
    "kernel": "the C kernel",
    "model": "one version of a model",
    "models": "the versions of a model",
    "peer": "the other server",
    "privacy": "a task's differential privacy",
    "records": "plain records that are stored",
    "relay": "one server's side of the relayed transport",
    "relay_keys": "server 1's relay keys",
    "report": "measurements as tables and charts",
    "results": "what a command prints, by type",
    "rounds": "rounds of a task",
    "routes": "the routes of one server alone",
    "run": "one run, and what came of it",
    "sessions": "sessions of a round",
    "settings": "the settings of a server",
    "simulate": "`secemb simulate`",
    "succession": "how a task goes on",
    "tasks": "tasks and their files",
    "tokens": "enrolment tokens",
}
# Who computes with torch: models that need it, and the model without privacy that they are compared with.
TORCH = ("secemb_sdk.models", "secemb_lab.report.central_bpr")
LONGEST_FILE = 400


def arrows_against_the_design(module: str, source: str) -> list[str]:
    allowed = ARROWS[_top(module)] | {_top(module)}
    packages = {_top(name) for name in _imports(source)}
    return [f"{module} imports {p}" for p in sorted(packages - allowed) if p.startswith("secemb_")]


def touches_of_the_outside_world(module: str, source: str) -> list[str]:
    if not _is_within(module, "secemb_shared"):
        return []
    names = [n for n in _imports(source) if _top(n) in OUTSIDE_WORLD or n.startswith("http")]  # http, httpx, …
    if module == "secemb_shared.dpf._native":  # its worker threads: the kernel releases the GIL
        names = [n for n in names if not _is_within(n, "concurrent.futures")]
    calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [f"{module} imports {n}" for n in names] + [f"{module} calls {c}" for c in calls if c in OUTSIDE_CALLS]


def randomness_from_elsewhere(module: str, source: str) -> list[str]:
    if not _is_within(module, "secemb_shared"):
        return []
    sources = ["numpy.random"] if module == "secemb_shared.randomness" else ["numpy.random", "secrets"]
    names = [n for n in _imports(source) if any(_is_within(n, s) for s in sources)]
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    names += [n for n in map(ast.unparse, nodes) if n in {"np.random", "numpy.random"}]
    return [f"{module} draws from {name}" for name in names]


def typer_outside_the_command_line(module: str, source: str) -> list[str]:
    if _is_within(module, "secemb_tools.cli") or module == "secemb_lab.__main__":
        return []
    return [f"{module} imports {name}" for name in _imports(source) if _is_within(name, "typer")]


def torch_outside_the_models(module: str, source: str) -> list[str]:
    if any(_is_within(module, place) for place in TORCH):
        return []
    return [f"{module} imports {name}" for name in _imports(source) if _is_within(name, "torch")]


def cores_that_know_of_http(module: str, source: str) -> list[str]:
    last = module.rpartition(".")[2]
    outer = any(_is_within(module, f"secemb_party.{room}") for room in ("http", "ui"))
    if _top(module) not in SERVICES or outer or last in {"app", "routes"} or last.endswith("_routes"):
        return []
    faults = [n for n in _imports(source) if _is_within(n, "secemb_party.http") or _top(n) in FRAMEWORKS]
    return [f"{module} imports {name}" for name in faults]


def public_names_in_disorder(module: str, source: str) -> list[str]:
    declared = _declared_names(source)
    missing = [f"{module} has no {name}" for name in declared if name not in _bound_names(source)]
    return missing + ([] if declared == sorted(declared, key=_customary_order) else [f"{module}.__all__ is unsorted"])


def names_that_name_nothing(module: str, _source: str) -> list[str]:
    return [f"{module} names no thing" for part in module.split(".") if NAMELESS & set(part.split("_"))]


def names_of_activities(module: str, _source: str) -> list[str]:
    last = module.rpartition(".")[2]
    return [f"{module} is named after an activity"] if last.endswith("ing") and last not in NOUNS else []


def files_past_their_length(module: str, source: str) -> list[str]:
    lines = len(source.splitlines())
    return [f"{module} has {lines} lines"] if lines > LONGEST_FILE else []


def errors_outside_their_tree(module: str, source: str) -> list[str]:
    tree = ast.parse(source)
    errors = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name.endswith("Error")]
    if not module.endswith(".errors"):
        return [f"{module} defines {name}: errors have a file of their own" for name in errors]
    drawn = set(re.findall(r"\w+", ast.get_docstring(tree) or ""))
    return [f"{module} does not draw {name} in its tree" for name in errors if name not in drawn]


def classes_in_several_senses(sources: Mapping[str, str]) -> list[str]:
    """Return the classes of one name that the modules of one process have; a section of settings is named as there."""
    places: dict[str, list[str]] = {}
    for module, source in sources.items():
        if not module.endswith(".settings"):
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(module)
    return [f"{name} is a class of {' and of '.join(found)}" for name, found in places.items() if len(found) > 1]


def names_in_several_senses(modules: Iterable[str]) -> list[str]:
    """Return the names that several modules have without saying in which sense; a sense that nobody needs is no use."""
    ends = Counter(module.rpartition(".")[2] for module in modules)
    shared = {name for name, count in ends.items() if count > 1 and not name.startswith("__")}
    unsaid = [
        f"several modules are called {name}: give one another name, or say the sense" for name in shared - SENSES.keys()
    ]
    return sorted(unsaid) + [
        f"only one module is called {name}: drop its sense" for name in sorted(SENSES.keys() - shared)
    ]


RULES: list[Rule] = [
    arrows_against_the_design,
    touches_of_the_outside_world,
    randomness_from_elsewhere,
    torch_outside_the_models,
    typer_outside_the_command_line,
    cores_that_know_of_http,
    public_names_in_disorder,
    names_that_name_nothing,
    names_of_activities,
    files_past_their_length,
    errors_outside_their_tree,
]


def _imports(source: str) -> Iterator[str]:
    """Yield the dotted name of everything imported, at any depth and by any statement (relative imports are linted)."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                if ast.unparse(function).endswith(("__import__", "import_module")):
                    yield name


def _declared_names(source: str) -> list[str]:
    """Return `__all__`, or nothing where a module has none."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return [str(name) for name in ast.literal_eval(value)]
    return []


def _bound_names(source: str) -> set[str]:
    """Return the names a module has once it is imported."""
    names: set[str] = set()
    for statement in _module_level(ast.parse(source)):
        match statement:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or _top(alias.name) for alias in aliases}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


def _module_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node that is not inside a function or class."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _module_level(node)


def _customary_order(name: str) -> tuple[int, list[str | int]]:
    """Sort constants, then classes, then the rest, as ruff's RUF022 does and `ruff check --fix` arranges."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _top(name: str) -> str:
    return name.partition(".")[0]
