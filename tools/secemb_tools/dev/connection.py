"""How a program connects to a local pair: addresses, task and token, as text, as JSON and as a program to run."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from typing_extensions import TypedDict

from secemb_sdk.home.files import write_file
from secemb_sdk.models import registry
from secemb_shared.messages.spec import NEXT
from secemb_tools.datasets.catalogue import write_catalogue
from secemb_tools.local import Pair
from secemb_tools.simulation.scenario import ScenarioWorld

PAGE = "/ui"  # the operator's page on each server
PROGRAM = "device.py"
_EXAMPLES = (5.0, 4.0, 4.0, 2.0, 1.0)  # the program's ratings of a few items; also the number of events
_TEXTS, _BEGUN = 3, 3  # texts that the program logs, and words of the first one for the device to continue


class Facts(TypedDict):
    """A local pair, and the data that a device needs to take part in its rounds."""

    servers: list[str]
    task_id: str
    token: str | None  # None: enrolment is open
    trust: str | None  # a certificate (PEM), for `ca`; None: the addresses are plain HTTP on this machine
    model: str
    items: int
    cohort: int
    catalogue: str | None  # a CSV file with the items' titles
    program: str  # a device in a few lines, ready to run
    page: str | None  # the address of the page with a device; None: there is none
    operators: list[str]  # the addresses of the operator's page and API
    operator_tokens: list[str]


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A running pair, and its files."""

    world: ScenarioWorld
    pair: Pair
    folder: Path
    token: str | None = field(default=None, repr=False)
    page: str | None = None  # the address of a page with a device

    def write_files(self) -> None:
        """Write the program, the token, and the files for the catalogue and the model."""
        ratings = self.world.ratings
        if ratings.catalogue.titles:
            write_catalogue(ratings.catalogue, self._catalogue)
        if self._needs_features:
            np.save(self._features, ratings.item_features)
        if self.token is not None:
            write_file(self._token, self.token.encode())
        write_file(self.folder / PROGRAM, self.program().encode())

    def facts(self) -> Facts:
        """Return everything as plain data."""
        ca = self.pair.ca
        return {
            "servers": list(self.pair.urls),
            "task_id": self.pair.task.task_id.hex(),
            "token": self.token,
            "trust": None if ca is None else str(ca),
            "model": self.world.scenario.model,
            "items": self.pair.task.items,
            "cohort": self.pair.task.cohort,
            "catalogue": str(self._catalogue) if self._catalogue.exists() else None,
            "program": str(self.folder / PROGRAM),
            "page": self.page,
            "operators": [server.operator_url for server in self.pair.servers],
            "operator_tokens": [server.operator_token for server in self.pair.servers],
        }

    def program(self) -> str:
        """Return a device in a few lines: it rates, chooses or writes, takes part in a round and recommends."""
        first, second = self.pair.urls
        arguments = [
            f'home="{self.folder / "device"}",  # any directory of its own; this one is deleted at the end',
            f'servers=("{first}", "{second}"),',
            f'task="{self.pair.task.task_id.hex()}",',
            *([] if self.token is None else [f'token="{self.token}",']),
            *([] if self.pair.ca is None else [f'ca="{self.pair.ca}",']),
            *self._model_argument(),
        ]
        inner = "\n".join(f"        {line}" for line in arguments)
        log, use = self._log_and_use()
        return _PROGRAM.format(imports=self._imports(), arguments=inner, log=log, use=use)

    def show(self, console: Console) -> None:
        """Print addresses, tokens and the program."""
        for server in self.pair.servers:
            console.print(f"server {server.role}    {server.url}", soft_wrap=True)
        console.print(f"task        {self.pair.task.task_id.hex()}", soft_wrap=True)
        if self.token is not None:
            console.print(f"token       {self.token}", soft_wrap=True)
        if self.pair.ca is not None:
            console.print(f"ca          {self.pair.ca}", soft_wrap=True)
        items = f"items       0 to {self.pair.task.items - 1:,}"
        console.print(items + (f", titles in {self._catalogue}" if self._catalogue.exists() else ""), soft_wrap=True)
        for server in self.pair.servers:
            console.print(f"operator    {server.operator_url}{PAGE}  token {server.operator_token}", soft_wrap=True)
        if self.page is not None:
            console.print(f"page        {self.page}  a device in the browser", soft_wrap=True)
        console.print(f"\nA device in Python; `python {self.folder / PROGRAM}` runs it:\n", soft_wrap=True)
        console.print(self.program(), soft_wrap=True, markup=False)
        console.print("Without Python:\n", soft_wrap=True)
        for line in self._commands():
            console.print(f"  {line}", soft_wrap=True, markup=False)

    def _commands(self) -> list[str]:
        first, second = self.pair.urls
        task, ca = self.pair.task.task_id.hex(), self.pair.ca
        authority = "" if ca is None else f"--cacert {ca} "
        operator = self.pair.servers[0]
        commands = [
            f"curl {authority}{first}/v1/tasks/{task}",
            f"curl {authority}-H 'authorization: Bearer {operator.operator_token}' "
            f"'{operator.operator_url}/v1/operator/rounds?limit=1'",
        ]
        token = "" if self.token is None else f" --token-file {self._token}"
        trusted = "" if ca is None else f" --ca {ca}"
        join = f"secemb device join {self.folder / 'mine'} --server0 {first} --server1 {second} --task {task}"
        return [*commands, f"{join}{token}{trusted}"]

    @property
    def _needs_features(self) -> bool:
        return registry.find(self.world.scenario.model).needs_features

    @property
    def _catalogue(self) -> Path:
        return self.folder / "catalogue.csv"

    @property
    def _token(self) -> Path:
        return self.folder / "token"

    @property
    def _features(self) -> Path:
        return self.folder / "item_features.npy"

    def _imports(self) -> str:
        if self.world.scenario.model == "mf":
            return ""
        names = "KnownFeatures, find" if self._needs_features else "find"
        return ("import numpy\n" if self._needs_features else "") + f"from secemb_sdk.models.registry import {names}\n"

    def _model_argument(self) -> list[str]:
        scenario = self.world.scenario
        if scenario.model == "mf":
            return []
        if not self._needs_features:
            dimension = scenario.recipe.dimension
            settings = "" if dimension is None else f"dimension={dimension}"
            return [f'model=find("{scenario.model}").make({settings}),']
        person = f"numpy.zeros({self.world.ratings.user_features.shape[1]}, numpy.uint8)"
        return [
            f'model=find("{scenario.model}").make(',
            f"    dimension={scenario.recipe.dimension},",
            f'    features=KnownFeatures({person}, numpy.load("{self._features}").__getitem__),',
            "),",
        ]

    def _log_and_use(self) -> tuple[str, str]:
        """Return the program's lines for logging and for recommendations."""
        if not registry.find(self.world.scenario.model).has_texts:
            return self._log(), "device.recommend(k=5)"
        texts = self.world.texts_of(0)[:_TEXTS]
        begun = " ".join(texts[0].split()[:_BEGUN]) if texts else ""
        return f"device.log_texts([(text, None) for text in {texts}])", f"device.suggest({begun!r}, k=3)"

    def _log(self) -> str:
        """Return a line that logs a few ratings or events of popular items: those that occur most often."""
        known = np.argsort(-np.bincount(self.world.ratings.items, minlength=self.pair.task.items), kind="stable")
        pairs = list(zip(known.tolist(), _EXAMPLES, strict=False))
        if self.pair.task.loss == NEXT:
            events = ", ".join(f"({item}, None)" for item, _ in pairs)
            return f"device.log_events([{events}])  # items in the order in which they were chosen"
        ratings = ", ".join(f"{item}: {rating}" for item, rating in pairs)
        return f"device.log_many({{{ratings}}})  # item: rating from 1 to 5"


_PROGRAM = """\
import asyncio

{imports}from secemb_sdk import Device, Dropped, NotNow


async def main() -> None:
    async with Device.open(
{arguments}
    ) as device:
        {log}
        while isinstance(outcome := await device.contribute(), NotNow | Dropped):
            print(outcome)
            await asyncio.sleep(outcome.seconds)
        print(outcome)
        await asyncio.sleep(1)  # the servers publish the next version of the model
        for one in await {use}:
            print(one)


asyncio.run(main())
"""
