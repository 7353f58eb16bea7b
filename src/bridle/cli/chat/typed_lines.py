"""Reads what is typed on the terminal while a run works: answers to its questions, else messages for it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from bridle.run.stream import Stream
from bridle.values.errors import MisuseError
from bridle.watchers.console import Console

from .prompt_input import CONTINUATION

READ_BYTES = 65_536
COMMAND_MARK = "/"


class LineOwner(Protocol):
    """Keeps the lines that are for after the turn."""

    console: Console
    waiting_lines: list[str]


class TypedLines:
    """The terminal is in line mode meanwhile, so a line arrives when it is complete."""

    def __init__(self, owner: LineOwner) -> None:
        self._owner = owner
        self._stream: Stream[object] | None = None
        self._rest = b""
        self._continued: list[str] = []
        self._answer: asyncio.Future[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ended = False

    @asynccontextmanager
    async def listen(self, stream: Stream[object]) -> AsyncIterator[None]:
        """Read lines until the run has ended."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        self._stream, self._is_ended = stream, False
        loop.add_reader(descriptor, self._read_lines, descriptor)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            await asyncio.gather(*self._tasks)
            self._stream = None

    async def read_answer(self) -> str:
        """The next line, for a question of the run; empty at the end of the input."""
        if self._is_ended:
            return ""
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _read_lines(self, descriptor: int) -> None:
        data = os.read(descriptor, READ_BYTES)
        if not data:  # Ctrl-D
            self._is_ended = True
            asyncio.get_running_loop().remove_reader(descriptor)
            self._give_answer("")
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take_line(line.decode(errors="replace").rstrip("\r"))

    def _take_line(self, line: str) -> None:
        if self._give_answer(f"{line}\n") or not line.strip():
            return
        self._continued.append(line.removesuffix(CONTINUATION))
        if line.endswith(CONTINUATION):
            return
        line = "\n".join(self._continued)
        self._continued.clear()
        if line.startswith(COMMAND_MARK):
            self._owner.waiting_lines.append(line)
            self._owner.console.note(f"· {line.strip()} follows after this turn")
            return
        task = asyncio.create_task(self._steer(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_answer(self, line: str) -> bool:
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(line)
        return True

    async def _steer(self, line: str) -> None:
        try:
            assert self._stream is not None
            await self._stream.steer(line)
        except MisuseError:  # the run has ended: the line is the next prompt
            self._owner.waiting_lines.append(line)
