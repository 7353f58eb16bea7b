"""Runs one program of a model in its own process; the harness passes the text of this file to `python -c`.

The program reaches the harness only through two pipes: standard input and standard output carry JSON with its length
before it; in a message to the harness, the turn of the last answer comes first.  What the program prints goes to
standard error.  Only the standard library is used here.

Programs are repeatable as far as the language allows: the hash seed and the seed of `random` are fixed, and branches
of `parallel` run one at a time in a fixed order.
"""

import ast
import json
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, BinaryIO

PROGRAM_FILE = "<program>"
LENGTH_BYTES = 4
Call = dict[str, Any]
CallResult = dict[str, Any]


class ToolError(Exception):
    """A tool call failed; `outcome` is `error`, `denied`, `timeout` or another outcome of the call."""

    def __init__(self, message: str, outcome: str = "error") -> None:
        super().__init__(message)
        self.outcome = outcome


class Link:
    """The pipes to the harness."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer
        self._lock = threading.Lock()
        """Held from a message to its answer: threads of the program may call functions too."""
        self.batch_max = 1
        self.turn = ""
        """Bytes, in hexadecimal, of the latest message of the harness, with which the next one to it begins."""

    def receive(self) -> dict[str, Any]:
        length = int.from_bytes(self._read(LENGTH_BYTES), "big")
        found: dict[str, Any] = json.loads(self._read(length))
        self.turn = found["turn"]
        return found

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, allow_nan=False).encode()
        self._writer.write(bytes.fromhex(self.turn) + len(data).to_bytes(LENGTH_BYTES, "big") + data)
        self._writer.flush()

    def exchange(self, calls: list[Call]) -> list[CallResult]:
        """Have the calls run, in as many batches as necessary."""
        results: list[CallResult] = []
        for start in range(0, len(calls), self.batch_max):
            with self._lock:
                self.send({"calls": calls[start : start + self.batch_max]})
                results += self.receive()["results"]
        return results

    def finish(self, message: dict[str, Any]) -> None:
        """Send the last message; calls of threads that the program left behind wait for ever."""
        self._lock.acquire()
        self.send(message)

    def _read(self, count: int) -> bytes:
        data = self._reader.read(count)
        if len(data) < count:
            os._exit(1)  # the harness is gone
        return data


class ParallelBranch:
    """One function of `parallel`, in a thread of its own that runs only between `resume` and its next call."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function, self._results = function, list[CallResult]()
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self.calls: list[Call] = []
        """Calls whose results it waits for; empty once it has ended."""
        self.value: object = None
        self.error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self, results: list[CallResult]) -> None:
        self._results = results
        self._go.release()
        self._paused.acquire()

    def exchange(self, calls: list[Call]) -> list[CallResult]:
        self.calls = calls
        self._paused.release()
        self._go.acquire()
        return self._results

    def _run(self) -> None:
        self._go.acquire()
        CURRENT.branch = self
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001 - raised again in `parallel`
            self.error = error
        self.calls = []
        self._paused.release()


CURRENT = threading.local()


class Program:
    def __init__(self, link: Link) -> None:
        self._link = link

    def run(self, start: dict[str, Any]) -> None:
        """Run the program to its end and report it."""
        self._link.batch_max = start["batch_max"]
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        module.__dict__.update(ToolError=ToolError, parallel=self.parallel, call_tool=self.call_tool)
        for source in start["functions"]:
            exec(compile(source, "<tools>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        del module.__dict__["call_tool"]  # the functions have it as a default
        random.seed(0)
        problem = self._execute(start["code"], module.__dict__).encode(errors="backslashreplace").decode()
        sys.stdout.flush()
        sys.stderr.flush()
        self._link.finish({"failed": problem} if problem else {"done": True})

    def call_tool(self, name: str, arguments: dict[str, Any], *, parse: bool) -> object:
        """Call a tool: what every generated function does."""
        given = {key: value for key, value in arguments.items() if value is not ...}
        # An error here names the line of the program; half a character cannot be encoded.
        json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
        result = self._exchange([{"name": name, "arguments": given}])[0]
        if result["outcome"] != "ok":
            raise ToolError(result["text"], result["outcome"])
        if not parse:
            return result["text"]
        try:
            return json.loads(result["text"])
        except ValueError:
            return result["text"]

    def parallel(self, *functions: Callable[[], Any]) -> list[Any]:
        """Run functions without arguments at the same time: parallel(lambda: f(1), lambda: f(2)) -> [r1, r2]."""
        branches = [ParallelBranch(function) for function in functions]
        for branch in branches:
            branch.resume([])
        while waiting := [branch for branch in branches if branch.calls]:
            results = self._exchange([call for branch in waiting for call in branch.calls])
            for branch in waiting:
                count = len(branch.calls)
                own, results = results[:count], results[count:]
                branch.resume(own)
        for branch in branches:
            if branch.error is not None:
                raise branch.error
        return [branch.value for branch in branches]

    def _exchange(self, calls: list[Call]) -> list[CallResult]:
        branch: ParallelBranch | None = getattr(CURRENT, "branch", None)
        return self._link.exchange(calls) if branch is None else branch.exchange(calls)

    def _execute(self, code: str, names: dict[str, Any]) -> str:
        """Run the code; returns the traceback if it failed.  The value of a last expression is printed."""
        linecache.cache[PROGRAM_FILE] = (len(code), None, code.splitlines(keepends=True), PROGRAM_FILE)
        try:
            tree = ast.parse(code, PROGRAM_FILE)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, PROGRAM_FILE, "exec", dont_inherit=True), names)  # noqa: S102
            if isinstance(last, ast.Expr):
                made = compile(ast.Expression(last.value), PROGRAM_FILE, "eval", dont_inherit=True)
                value = eval(made, names)  # noqa: S307
                if value is not None:
                    sys.stdout.write(f"{value if isinstance(value, str) else repr(value)}\n")
        except SystemExit as end:
            return "" if end.code in (None, 0) else f"SystemExit: {end.code}"
        except BaseException as error:  # noqa: BLE001 - reported to the model
            return _format_error(error)
        return ""


def _format_error(error: BaseException) -> str:
    """The traceback, without the frames of this file."""
    described = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = described
    while each is not None:
        each.stack = traceback.StackSummary.from_list(
            [frame for frame in each.stack if frame.filename == PROGRAM_FILE]
        )
        each = each.__cause__ or each.__context__
    return "".join(described.format()).strip()


def main() -> None:
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    link = Link(reader, writer)
    Program(link).run(link.receive())
    os._exit(0)  # threads that the program left behind do not delay its end


if __name__ == "__main__":
    main()
