"""The tool of code mode: runs a Python program of the model, whose functions are the agent's other tools.

Each call is a session of its own, like a call of an agent that is a tool: a resumed run finds it again.  The program
takes the place of the model in it (run/calls/program_model.py).  So its calls are validated, permitted, approved,
limited, recorded and traced like all others, and there is no second way to run a tool.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace as replace_resources
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from bridle.ports.run_context import RunContext
from bridle.ports.sandbox import Sandbox, SandboxLimits
from bridle.ports.tool import ANY_ERROR, Json, Tool
from bridle.run.agent_settings import AgentInputs, AgentParts
from bridle.run.budget.nested import apply_parent_context, current_nested_run
from bridle.run.budget.program_calls import ProgramCalls
from bridle.run.cancellation import finish_despite_cancel
from bridle.run.context.instructions import parse_instructions
from bridle.run.model_connection import ModelChain
from bridle.run.private_extras import NO_PRIVATE_EXTRAS
from bridle.run.result import NO_CHECKS, make_result
from bridle.run.validate_input import make_prompted, resolve_session
from bridle.sandbox.local import find_sandbox
from bridle.tools.code_mode.functions import ProgramFunction, make_functions
from bridle.tools.collect_tools import split_sources
from bridle.tools.function.options import ToolBehavior, ToolOptions
from bridle.tools.process.command_tool import OutputTail
from bridle.tools.search.lexical_index import LexicalIndex
from bridle.tools.search.search_tools import SEARCH_TOOL_NAME, SearchTools
from bridle.values.errors import BadTool, BridleError
from bridle.values.hooks import HookSpec
from bridle.values.message import Stop, Text
from bridle.values.request import ToolSpec
from bridle.values.result import Result
from bridle.values.settings import TOOLS_FOUND_DEFAULT, Settings
from bridle.values.usage import Budget

from .catalogue import ToolLayout
from .code_mode import BoundCodeMode
from .program_model import PROGRAM_MODEL, ProgramModel, split_problem

CODE_PARAMETER = "code"
FOLDER_MODULE = "bridle.tools.code_mode.folder"
"""Imported only for a program without a sandbox: its locks need POSIX."""
PARAMETERS = msgspec.json.encode(
    {
        "type": "object",
        "properties": {
            CODE_PARAMETER: {"type": "string", "description": "The program; print what you want to see."}
        },
        "required": [CODE_PARAMETER],
        "additionalProperties": False,
    }
).decode()
INTRODUCTION = (
    "Run a Python program that calls these functions. Use it to combine several calls: loop over results, filter them"
    " and print only what you need. You see what the program prints and the value of its last expression. Each program"
    " is a new process{place}; nothing is kept between programs. A call that fails raises ToolError, with the reason."
    " parallel(lambda: f(1), lambda: g(2)) runs calls at the same time and returns their results as a list. help(f)"
    " prints the documentation of a function. Do not let calls depend on the time or on random values: a program that"
    " is interrupted is run again, and its completed calls are answered from the log."
)
ISOLATED = " in an empty folder, without network"
# not from outside: our own text, shown to a person or a model
STUB_CHARACTERS_MAX = 12_000
"""Longer lists show only the names of the functions."""
NAMES_ONLY = "There are {count} functions; print(search_tools(query)) finds them by what they do. Their names: {names}."
PROCESSES_MAX = 64
TOOL_POINTS = ("before_tool", "after_tool")
"""Hooks that decide about calls of programs; those of models and answers have nothing to decide here."""
# not from outside: our own text, shown to a person or a model
PROBLEM_CHARACTERS_MAX, OUTPUT_CHARACTERS_MAX = 1_200, 600
"""Ends of the traceback and of the output in an error; both are complete in the session of the program."""


class ProgramFailed(BridleError):
    """A program failed or was ended; the model reads the message."""


class CodeTool:
    declared_errors = ANY_ERROR
    runs_programs = True

    def __init__(self, bound: BoundCodeMode, tools: Mapping[str, Tool], inputs: AgentInputs[Any]) -> None:
        mode = self._mode = bound.mode
        self._inputs = inputs
        prefixes = tuple(source.prefix for source in split_sources(inputs.tools)[1])
        self._resources, self._given = bound.resources, _choose_tools(mode.tools, tools, prefixes)
        functions = make_functions(self._given.values())
        stubs = "\n".join(function.stub for function in functions)
        if len(stubs) > STUB_CHARACTERS_MAX:
            if SEARCH_TOOL_NAME in self._given:
                raise BadTool(
                    f"tool `{SEARCH_TOOL_NAME}`: programs have a function with that name; rename your tool"
                )
            specs = [tool.spec for tool in self._given.values()]
            search = SearchTools(inputs.tool_index or LexicalIndex(), specs, TOOLS_FOUND_DEFAULT)
            self._given = {**self._given, SEARCH_TOOL_NAME: search}
            stubs = NAMES_ONLY.format(count=len(functions), names=", ".join(each.name for each in functions))
            functions = make_functions(self._given.values())
        self._functions: tuple[ProgramFunction, ...] = functions
        place = ISOLATED if mode.sandbox == "auto" else ""
        options: dict[str, Any] = {
            "effect": "exclusive",
            "timeout": None,
            "on_unknown": "retry",
            "always": True,
        }
        self.behavior = ToolBehavior(
            mode.name,
            f"{INTRODUCTION.format(place=place)}\n\n{stubs}",
            PARAMETERS,
            cast("ToolOptions", options),
        )
        self.spec = self.behavior.spec
        self._settings = make_program_settings(
            inputs.settings, mode.name, tuple(tool.spec for tool in self._given.values())
        )

    @property
    def workspace(self) -> Path | None:
        """The folder that programs can write, if it outlives them."""
        sandbox = self._mode.sandbox
        return None if sandbox is None or sandbox == "auto" else sandbox.workspace

    def replace_tools(self, known: Mapping[str, Tool]) -> dict[str, Tool]:
        """The tools that the model sees."""
        hidden = () if self._mode.direct else self._given
        return {**{name: tool for name, tool in known.items() if name not in hidden}, self.spec.name: self}

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text]:
        code, tail = str(arguments[CODE_PARAMETER]), OutputTail(context)
        if not code.strip():
            raise ProgramFailed("the program is empty")
        sandbox = self._open_sandbox()
        with ExitStack() as ends:
            key = context.idempotency_key or secrets.token_hex(8)
            if sandbox is not None:
                place = sandbox.workspace
            else:
                place = ends.enter_context(import_module(FOLDER_MODULE).open_program_folder(key))
            program = ProgramModel(self._mode, self._functions, sandbox, place, tail.take)
            try:
                result = await self._run_session(program, code, context)
                if result.stop == "waiting" and (outer := current_nested_run()) is not None:
                    outer.wait_for_person(result.session, result.reason)
                    return ()
                if not result.done:
                    why = f"the program was ended as {result.stop!r}: {result.reason}"
                    raise ProgramFailed(_describe_problem(await program.close(), why))
            finally:
                tail.close()
                await finish_despite_cancel(program.close())
        if result.messages[-1].stop is Stop.OTHER:
            texts = [part for part in result.messages[-1].parts if isinstance(part, Text)]
            raise ProgramFailed(_describe_problem(*split_problem(texts)))
        return (Text(text=result.text),)

    def _open_sandbox(self) -> Sandbox | None:
        # guard: program-sandbox
        if self._mode.sandbox != "auto":
            return self._mode.sandbox
        limits = SandboxLimits(memory_bytes=self._mode.memory_bytes, processes=PROCESSES_MAX)
        return find_sandbox(None, limits=limits)

    async def _run_session(self, program: ProgramModel, code: str, context: RunContext) -> Result[str]:
        """Run the session of this call to its end, or continue it."""
        outer, key, resources = current_nested_run(), context.idempotency_key, self._resources()
        given = f"{self.spec.name}-{key}" if key else None
        session, _ = resolve_session(given, new=None, now=resources.clock.now())
        if outer is not None:
            outer.program = ProgramCalls(outer, session)
            # The outer run lends these.
            resources = replace_resources(
                resources, store_location=None, pool=None, watchers=(), approver=None
            )
        named = {spec.name for spec in self._settings.hooks}
        inner = replace_resources(
            resources,
            retriever=None,
            hooks={name: hook for name, hook in resources.hooks.items() if name in named},
            handovers=(),
            tracing=None,
            budget=None,
        )
        opened = inner.open_session(session, self._make_parts(program), inside=outer, context=context.context)
        prompted = apply_parent_context(make_prompted(code, (None, Budget(steps=None)), "", ""))
        return make_result(session, await opened.prompt_once(prompted), None)

    def _make_parts(self, program: ProgramModel) -> AgentParts[str]:
        chain = ModelChain((PROGRAM_MODEL,), {PROGRAM_MODEL.model_key: program.connection})
        return AgentParts(
            inputs=self._inputs,
            settings=self._settings,
            model_chain=chain,
            tool_layout=ToolLayout(self._given, self._settings.tools, ()),
            output_type=None,
            choose_options=None,
            private_extras=NO_PRIVATE_EXTRAS,
            context_needs=(),
            instructions=parse_instructions(None),
            output_checker=NO_CHECKS,
        )

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


def make_program_settings(settings: Settings, name: str, tools: tuple[ToolSpec, ...]) -> Settings:
    """The settings of a program's session: the agent's rules for tools, and none of those for models."""
    points = (
        (spec, tuple(point for point in spec.points if point in TOOL_POINTS)) for spec in settings.hooks
    )
    hooks: tuple[HookSpec, ...] = tuple(replace(spec, points=kept) for spec, kept in points if kept)
    # guard: program-policy
    return Settings(
        model=PROGRAM_MODEL,
        name=name,
        tools=tools,
        policy=settings.policy,
        approval_seconds=settings.approval_seconds,
        tools_at_once_max=settings.tools_at_once_max,
        rate_limits=tuple(limit for limit in settings.rate_limits if limit.tool),
        hooks=hooks,
        repeats_max=None,
        result_characters=None,
        compaction=None,
    )


def _choose_tools(
    names: Sequence[str] | None, tools: Mapping[str, Tool], prefixes: tuple[str, ...]
) -> dict[str, Tool]:
    """The tools that programs may call: no tool of a provider or of the caller, none that hands over.

    Names with one of the `prefixes` are those of tools that a server has not listed yet.
    """
    usable = {
        name: tool
        for name, tool in tools.items()
        if not (tool.spec.native or tool.spec.handover or tool.spec.external)
    }
    if names is None:
        return usable
    if missing := [name for name in names if name not in usable and not name.startswith(prefixes)]:
        listed = ", ".join(usable) or "none"
        raise BadTool(f"CodeMode(tools=…): programs cannot call `{missing[0]}`; they can call: {listed}")
    return {name: usable[name] for name in dict.fromkeys(names) if name in usable}


def _describe_problem(output: str, problem: str) -> str:
    problem, printed = problem[-PROBLEM_CHARACTERS_MAX:], output.strip()[-OUTPUT_CHARACTERS_MAX:]
    return f"{problem}\n[the end of what it printed before]\n{printed}" if printed else problem
