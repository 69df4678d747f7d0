"""Answers in one write: nothing is lost, reordered or kept back."""

import asyncio
from collections.abc import Iterable

import pytest

from secemb_party.http.answer_transport import AnswerTransport

pytestmark = pytest.mark.asyncio


class Line(asyncio.Transport):
    """Records the writes of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.writes.append(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


def opened() -> tuple[Line, AnswerTransport]:
    line = Line()
    return line, AnswerTransport(line, asyncio.get_running_loop())


async def test_a_head_and_its_body_are_one_write() -> None:
    line, transport = opened()
    transport.write(b"head")
    assert line.writes == []
    transport.write(b"body")
    assert line.writes == [b"headbody"]
    await asyncio.sleep(0)
    assert line.writes == [b"headbody"]


async def test_a_head_without_a_body_waits_for_one_turn_only() -> None:
    line, transport = opened()
    transport.write(bytearray(b"head"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert line.writes == [b"head"]
    transport.write(b"first")
    transport.write(b"second")
    assert line.writes == [b"head", b"firstsecond"]


async def test_what_is_held_is_sent_before_anything_else_and_before_closing() -> None:
    line, transport = opened()
    transport.write(b"a")
    transport.writelines([b"b", b"c"])
    transport.write(b"d")
    transport.close()
    assert line.writes == [b"a", b"bc", b"d"]
    assert line.closed


async def test_a_buffer_that_the_caller_reuses_is_copied() -> None:
    line, transport = opened()
    buffer = bytearray(b"head")
    transport.write(buffer)
    buffer[:] = b"gone"
    transport.write(b"body")
    assert line.writes == [b"headbody"]


async def test_an_aborted_connection_sends_nothing_more() -> None:
    line, transport = opened()
    transport.write(b"head")
    transport.abort()
    await asyncio.sleep(0)
    assert (line.writes, line.aborted) == ([], True)
