"""A command that runs until it is done or until Ctrl-C: what it prints, and what it leaves behind."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

OWN = {"temporary", "output.txt", "errors.txt"}  # what a test makes around a command


@dataclass
class Running:
    """A command that runs, with its own place for temporary files."""

    process: subprocess.Popen[str]
    folder: Path
    output: Path

    @classmethod
    def start(cls, place: Path, *words: str) -> "Running":
        """Start `secemb` with these words."""
        folder, output = place / "temporary", place / "output.txt"
        folder.mkdir()
        with output.open("w") as file, (place / "errors.txt").open("w") as errors:
            variables = os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
            command = [sys.executable, "-m", "secemb_tools", *words]
            process = subprocess.Popen(command, stdout=file, stderr=errors, text=True, env=variables)
        return cls(process, folder, output)

    def end(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def text(self) -> str:
        return self.output.read_text()

    def errors(self) -> str:
        return self.output.with_name("errors.txt").read_text()

    @property
    def report(self) -> Path:
        return self.output.with_name("demo.html")

    def wait_until(self, holds: Callable[["Running"], bool], *, may_end: bool = False) -> None:
        end = time.monotonic() + 240
        while not holds(self):
            if may_end and self.process.poll() == 0:
                return
            assert self.process.poll() is None, self.text() + self.errors()
            assert time.monotonic() < end, self.text() + self.errors()
            time.sleep(0.01)

    def services(self) -> list[int]:
        """Return the processes that serve something below this command's folder."""
        return [pid for pid, words in command_lines() if str(self.folder) in words]

    def files(self) -> list[Path]:
        """Return what lies where this command keeps its files."""
        return list(self.folder.iterdir())

    def ports(self) -> list[int]:
        """Return those of its ports that a process listens on."""
        named = {int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", self.text())}
        return [port for port in named if listens(port)]

    def run_printed_program(self) -> str:
        """Run the program whose path was printed, and return what it prints."""
        (program,) = set(re.findall(r"/\S+/device\.py", self.text()))
        done = subprocess.run([sys.executable, program], check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def check_that_nothing_is_left(self) -> None:
        assert (self.files(), self.services(), self.ports()) == ([], [], [])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def command_lines() -> Iterator[tuple[int, str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_bytes().decode(errors="replace")
        except OSError:
            continue
