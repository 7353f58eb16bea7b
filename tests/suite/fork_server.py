"""Runs functions of a test's module in processes that are forked from one which has imported it.

A fork takes milliseconds; an interpreter that imports the package takes most of a second.  The processes can be
stopped and killed like any others.  Before the first fork the server imports what a run of an agent imports, or what the
module's function `warm_up` does.

    python -m tests.suite.fork_server MODULE

reads requests from its input, one JSON value to a line, and answers each with a number.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from importlib import import_module

from bridle import Agent
from tests.suite.paths import name_module

STOPPED = -signal.SIGSTOP
"""What `wait` returns for a process that is stopped, and not ended."""
FAILED = 1


class ForkServer:
    def __init__(self, test_file):
        # Python warns of forks in a process with threads; the server checks that it has none.
        options = ("-W", "ignore::DeprecationWarning", "-m", "tests.suite.fork_server")
        command = [sys.executable, *options, name_module(test_file)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._left = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._server.communicate()

    def start(self, function, *arguments, output=os.devnull):
        """Call a function of the module in a new process; returns its id.  `output` is a file for all that it prints."""
        process = self._ask({"call": function, "arguments": arguments, "output": str(output)})
        self._left.add(process)
        return process

    def wait(self, process):
        """Wait until a process stops or ends; returns STOPPED, its exit code, or its signal as a negative number."""
        status = self._ask({"wait": process})
        if status != STOPPED:
            self._left.discard(process)
        return status

    def run(self, function, *arguments, output=os.devnull):
        return self.wait(self.start(function, *arguments, output=output))

    def _ask(self, request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


def serve(module):
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], os.WUNTRACED)
            answer = STOPPED if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                run_child(getattr(module, request["call"]), request["arguments"], request["output"])
        print(answer, flush=True)


def run_child(function, arguments, output):
    code = FAILED
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the server reads its requests there
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        code = function(*arguments) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def import_used_modules(function):
    """Import what a function imports.  It runs in a process of its own, as it may start threads."""
    reading, writing = os.pipe()

    def list_modules():
        function()
        with os.fdopen(writing, "w") as names:
            names.write("\n".join(sys.modules))

    if os.fork() == 0:
        run_child(list_modules, (), "/dev/stderr")
    os.close(writing)
    with os.fdopen(reading) as names:
        for name in names.read().split():
            if name != "__main__":
                import_module(name)


def run_agent():
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Agent("sim:", store=f"{folder}/log.db").run("Hi."))


def main(name):
    module = import_module(name)
    import_used_modules(getattr(module, "warm_up", run_agent))
    assert threading.active_count() == 1, "a process with threads must not fork"
    serve(module)


if __name__ == "__main__":
    main(*sys.argv[1:])
