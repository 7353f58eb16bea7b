"""Makes a tool from a command line.

    CommandTool("history", "Who changed a file, and when.",
                ["git", "log", "-n", "{count}", "--", "{path}"], effect="read", timeout=10)

The words of the command are fixed; names in braces are replaced by arguments.  There is no shell, so an argument
never becomes more than its word, whatever it contains.  A list becomes one word per item; null or a missing
argument becomes no word.

Programs read a word that starts with "-" as an option, and many options write files or run other programs;
`kill {pid}` with -1 ends every process.  An argument that starts with "-" is therefore rejected, unless it comes
after a "--" or inside a longer word (`--message={text}`, `--offset={number}`).

Exit codes other than 0 are failures, reported to the model with the end of the output; `exits` lists the codes
that mean success.  While the program runs, viewers of the run see its latest line of output.
"""

import asyncio
import copy
import json
import os
import re
import signal
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from bridle.ports.held_folder import WorkingFolder
from bridle.ports.run_context import RunContext
from bridle.ports.sandbox import OUTPUT_BYTES_MAX, Sandbox
from bridle.ports.tool import ANY_ERROR, Json, is_deadline_cancel
from bridle.tools.function.invoker import make_result_parts
from bridle.tools.function.options import DeclaredTool, ToolBehavior, ToolOptions
from bridle.tools.names import check_tool_name
from bridle.tools.schema.document import encode_schema
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.tools.schema.json_form import to_json_text
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.result import Progress
from bridle.values.text import escape_text

from .run_process import (
    GRACE_SECONDS,
    PASSED_VARIABLES,
    ProcessResult,
    RunningProcess,
    make_environment,
    start_in_turn,
)

# not from outside: names and requests that we make
WORD_BYTES_MAX = 80_000
"""Of one argument as JSON, as the launcher of a sandbox gets it beside its mounts; the kernel takes 128 KiB."""
ERROR_STDERR_CHARACTERS = 1_200
ERROR_STDOUT_CHARACTERS = 500
"""Chosen so that an error result holds both with the text around them."""
# not from outside: our own text, shown to a person or a model
TAIL_SECONDS, TAIL_BYTES_MAX, TAIL_CHARACTERS_MAX = 0.2, 800, 200
"""Shortest time between two reports of the latest line, and its longest form."""
LINE_END = re.compile(r"[\r\n]+")


class CommandTool(DeclaredTool):
    def __init__(
        self,
        name: str,
        description: str,
        argv: Sequence[str],
        *,
        parameters: Mapping[str, Any] | str | None = None,
        stdin: str = "",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = PASSED_VARIABLES,
        exits: Sequence[int] = (0,),
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        grace: float = GRACE_SECONDS,
        sandbox: Sandbox | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """`parameters` is a JSON Schema; without one, every name in braces is a required string.  `stdin` is the
        program's input and may have names in braces.  Its environment is `env`, the variables that `pass_env`
        names, and TRACEPARENT if the run is part of a trace.  `grace` is the time between TERM and KILL in seconds.
        `sandbox` isolates the program; without one, that of the agent (`Agent(sandbox=…)`) is used, if any."""
        check_tool_name(name)
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
            raise BadTool(f'tool `{name}`: argv must be a list of strings, like ["ls", "-l", "{{path}}"]')
        named = _list_placeholders(name, [*argv, stdin])
        if _list_placeholders(name, argv[:1]):
            raise BadTool(f"tool `{name}`: the program cannot depend on an argument")
        try:
            schema = parse_parameters_schema(
                encode_schema(_text_parameters_schema(named)) if parameters is None else parameters
            )
        except ValueError as error:
            raise BadTool(f"tool `{name}`: its schema {error}") from None
        super().__init__(ToolBehavior(name, description, schema, {"errors": ANY_ERROR, **options}))
        missing = [field for field in named if field not in self.behavior.arguments]
        if missing:
            raise BadTool(f"tool `{name}`: {{{missing[0]}}} in its command is not a parameter")
        self._argv, self._stdin, self._folder = tuple(argv), stdin, WorkingFolder(cwd)
        self._env, self._pass_env = dict(env or {}), tuple(pass_env)
        self._exits, self._output_bytes_max, self._grace = tuple(exits), output_bytes_max, grace
        self._sandbox = sandbox

    @property
    def workspace(self) -> Path | None:
        """The folder that the program can write, if it runs in a sandbox."""
        # guard: command-workspace
        return None if self._sandbox is None else self._sandbox.workspace

    def with_sandbox(self, sandbox: Sandbox) -> "CommandTool":
        """This tool in a sandbox; unchanged if it has one."""
        if self._sandbox is not None:
            return self
        made = copy.copy(self)
        # guard: agent-sandbox-used
        made._sandbox = sandbox
        return made

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> tuple[Text | Media, ...]:
        given = {**self.behavior.arguments, **arguments}
        argv, tail = self.make_argv(given), OutputTail(context)
        if max(len(json.dumps(word)) for word in argv) > WORD_BYTES_MAX:
            raise ValueError(
                f"an argument has more than {WORD_BYTES_MAX:,} bytes; write a file and run it instead"
            )
        async with start_in_turn():
            program = RunningProcess(
                argv,
                stdin=self._stdin.format_map({name: _argument_text(value) for name, value in given.items()}),
                cwd=self._folder.find(),
                environment=make_environment(self._pass_env, {**_trace_variables(context), **self._env}),
                output_bytes_max=self._output_bytes_max,
                grace=self._grace,
                on_output=tail.take,
                sandbox=self._sandbox,
            )
        try:
            ended = await program.wait_for_end(None)
        except asyncio.CancelledError as error:
            if not is_deadline_cancel(error):
                raise
            stopped = f"`{argv[0]}` and all it started were stopped; what it had done by then stays done"
            raise TimeoutError(_append_output_ends(stopped, program.result(timed_out=True))) from None
        finally:
            tail.close()
        if ended.not_run:  # whatever `exits` lists: no program has ended with this code
            raise ChildProcessError(_append_output_ends(f"the sandbox could not run `{argv[0]}`", ended))
        if ended.exit_code not in self._exits:
            raise ChildProcessError(
                _append_output_ends(f"`{argv[0]}` {_describe_exit(ended.exit_code)}", ended)
            )
        return make_result_parts(_format_output(ended), self.spec.name)

    def make_argv(self, arguments: Mapping[str, object]) -> list[str]:
        """The command with its arguments; raises ValueError for one that would be read as an option."""
        made: list[str] = []
        texts = {name: _argument_text(value) for name, value in arguments.items()}
        for index, word in enumerate(self._argv):
            field, plain = _sole_placeholder(word), "--" in self._argv[:index]
            if field is None:
                made.append(word.format_map(texts))
                if _starts_with_placeholder(word) and not plain:
                    self._check_not_option(made[-1], word)
                continue
            value = arguments[field]
            for item in value if isinstance(value, list | tuple) else () if value is None else (value,):
                made.append(_argument_text(item))
                if not plain:
                    self._check_not_option(made[-1], field)
        return made

    def _check_not_option(self, text: str, what: str) -> None:
        # guard: option-like-text
        if text.startswith("-"):
            raise ValueError(
                f"`{what}` is {text!r}, which `{self._argv[0]}` would read as an option; nothing was run"
            )


class OutputTail:
    """Shows the latest line of a program's output as progress of its call; control characters are escaped."""

    def __init__(self, context: RunContext) -> None:
        self._context, self._tail, self._is_new = context, b"", False
        self._timer: asyncio.TimerHandle | None = None

    def take(self, data: bytes) -> None:
        """Note what the program wrote; it is reported now, or when the current period is over."""
        self._tail, self._is_new = (self._tail + data)[-TAIL_BYTES_MAX:], True
        if self._timer is None:
            self._report()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        self._timer, context = None, self._context
        if not self._is_new or context.monitor is None or context.cancelled:
            return
        self._is_new = False
        lines = [line.strip() for line in LINE_END.split(self._tail.decode(errors="replace"))]
        line = next((line for line in reversed(lines) if line), "")
        message = escape_text(line)[:TAIL_CHARACTERS_MAX]
        context.monitor.show_progress(
            Progress(name=context.name, message=message, call_id=context.call_id, is_output=True)
        )
        self._timer = asyncio.get_running_loop().call_later(TAIL_SECONDS, self._report)


def _trace_variables(context: RunContext) -> dict[str, str]:
    """The variable by which a program joins the trace of the run."""
    return {"TRACEPARENT": context.traceparent} if context.traceparent else {}


def _list_placeholders(tool: str, words: Sequence[str]) -> list[str]:
    """The names in braces, each once."""
    found: dict[str, None] = {}
    for word in words:
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(word) if field is not None]
        except ValueError as error:
            raise BadTool(
                f"tool `{tool}`: {word!r} in its command: {error}; write {{{{ for a brace"
            ) from None
        for field in fields:
            if not field.isidentifier():
                raise BadTool(f"tool `{tool}`: {{{field}}} in its command is not a valid parameter name")
            found[field] = None
    return list(found)


def _sole_placeholder(word: str) -> str | None:
    """The placeholder's name, if the word consists of it alone."""
    pieces = list(string.Formatter().parse(word))
    if len(pieces) == 1 and pieces[0][0] == "" and pieces[0][1] is not None:
        return pieces[0][1]
    return None


def _starts_with_placeholder(word: str) -> bool:
    first = next(iter(string.Formatter().parse(word)), None)
    return first is not None and first[0] == "" and first[1] is not None


def _text_parameters_schema(names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


def _argument_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else to_json_text(value)


def _format_output(ended: ProcessResult) -> str:
    output = ended.stdout
    if ended.stderr.strip():
        output = f"{output}\n[stderr]\n{ended.stderr}" if output.strip() else f"[stderr]\n{ended.stderr}"
    if not output.strip():
        return f"[exit code {ended.exit_code}, no output]"
    return output if ended.exit_code == 0 else f"[exit code {ended.exit_code}]\n{output}"


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "could not be ended"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"


def _append_output_ends(message: str, ended: ProcessResult) -> str:
    for name, text, limit in (
        ("stderr", ended.stderr.strip(), ERROR_STDERR_CHARACTERS),
        ("stdout", ended.stdout.strip(), ERROR_STDOUT_CHARACTERS),
    ):
        if text:
            message += (
                f"\n[{name}]\n{text}" if len(text) <= limit else f"\n[the end of {name}]\n{text[-limit:]}"
            )
    return message
