"""Builds the agent that a command runs, from its options, the agent file, the settings and the session.

For every part the first of these that has it wins: option, agent file, log of the session, settings of the
environment and of files. Tools and the policy are not taken from a log, so for them the settings come third.
A session is also resumed with an agent of a Python file, which has all its parts.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace

from bridle.config.agent_file import read_agent_file
from bridle.config.agent_loader import load_agents, load_context_maker
from bridle.config.configuration import Configuration
from bridle.config.toml_file import show_path
from bridle.config.tool_loader import load_tools, share_loaded_files
from bridle.core.note_tools import FORGET_TOOL, REMEMBER_TOOL
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.providers.catalogue import choose_default_model
from bridle.run.agent import Agent
from bridle.run.agent_settings import AgentOptions
from bridle.run.calls.approval import Approver
from bridle.run.calls.code_mode import CODE_TOOL_NAME
from bridle.run.calls.handover import HandoverAgent, list_successors
from bridle.run.context.made_context import find_owner_of, make_run_context
from bridle.run.context.resources import copy_agent
from bridle.run.logged_settings import take_logged_instructions, take_logged_output
from bridle.toolkit.instruction_files import make_project_instructions
from bridle.tools.mcp.config_file import load_servers
from bridle.values.errors import MisuseError
from bridle.values.memory import Memory
from bridle.values.model import Model
from bridle.values.request import Thinking
from bridle.values.settings import Compaction, Settings
from bridle.values.usage import LIMIT_KINDS, Budget
from bridle.watchers.console import Console

from .agent_options import (
    add_default_rule,
    make_approver,
    make_budget,
    make_code_mode,
    make_toolkit,
    read_policy_option,
    report_hosted_tools,
    resolve_logged,
    take_extras_from_log,
    take_policy_from_log,
)
from .attached_files import read_schema_file

PROGRAMMED_PARTS = (
    "model", "fallback", "tools", "mcp", "toolkit", "skills", "code_mode", "policy", "trust_policy", "yes",
)  # fmt: skip
"""Options for parts that an agent of a Python file has itself."""


def list_code_parts(settings: Settings) -> dict[str, Sequence[str]]:
    """Names of the functions other than tools that a run needs again to be resumed, by their kind."""
    return {
        "hooks": [hook.name for hook in settings.hooks],
        "validators of the answer": settings.validators,
        "output functions": settings.output_functions,
    }


def _find_member(agent: Agent[Any, Any], name: str) -> HandoverAgent | None:
    """The agent of this name among an agent and those that it hands over to."""
    members = (agent, *list_successors(agent.handovers))
    return next((each for each in members if name and each.settings.name == name), None)


class AgentBuilder:
    """Loads what the options name, and builds the agent once the session is known."""

    def __init__(
        self,
        options: argparse.Namespace,
        console: Console,
        approver: Approver | None = None,
        *,
        is_resume: bool = False,
    ) -> None:
        # Loaded before the event loop starts: a tools file may run its own loop while it is loaded.
        self._options, self._console = options, console
        self._approver = approver or make_approver(options, console)
        is_python = bool(options.agent) and (":" in options.agent or options.agent.endswith(".py"))
        if is_python and not is_resume:
            raise MisuseError(
                f"-a takes an agent file (.toml), not {options.agent!r}: run a Python agent with Python or"
                " `bridle serve`; `bridle resume -a` continues its sessions"
            )
        maker: str | None = getattr(options, "context", None)
        with (
            share_loaded_files() if maker else nullcontext()
        ):  # the function and the tools see one class of context
            self._programmed = self._load_programmed() if is_python else {}
            self._make_context = load_context_maker(maker) if maker else None
            named_tools = load_tools(() if is_python else options.tools)
        self._defined = read_agent_file(options.agent) if options.agent and not is_python else None
        self._policy = read_policy_option(options) or (self._defined.policy if self._defined else None)
        schema: str | None = getattr(options, "output", None)
        self._output = read_schema_file(schema) if schema else None
        self._code_mode = make_code_mode(options, self._defined.code_mode if self._defined else None)
        given = (*named_tools, *make_toolkit(options))
        self._tools = [*(self._defined.tools if self._defined else ()), *given]
        self._servers = [
            *(self._defined.servers if self._defined else ()),
            *(made for path in getattr(options, "mcp", ()) for made in load_servers(path)),
        ]

    def _load_programmed(self) -> Mapping[str, Agent[Any, Any]]:
        """The agents of the Python file that `-a` names; raises `MisuseError` for options that they have themselves."""
        for name in PROGRAMMED_PARTS:
            value, setting = getattr(self._options, name), self._configuration.get(name)
            if value and value != (list(setting) if isinstance(setting, tuple) else setting):
                raise MisuseError(
                    f"--{name.replace('_', '-')}: the agent of {self._options.agent} has its own"
                )
        return load_agents([self._options.agent])

    def _find_programmed(self, session: Settings) -> Agent[Any, Any]:
        """The agent with the name of the session's, or one that hands over to it; the only one if one has no name."""
        found = self._programmed.get(session.name)
        if found is None:
            found = next(
                (each for each in self._programmed.values() if _find_member(each, session.name)), None
            )
        if found is None and len(self._programmed) == 1:
            found = next(iter(self._programmed.values()))
            if session.name and found.settings.name:
                raise MisuseError(
                    f"this session is one of the agent {session.name!r}, and {self._options.agent} has only"
                    f" {found.settings.name!r}; name the Python file of its agent: -a FILE.py"
                )
        if found is None:
            raise MisuseError(
                f"{self._options.agent} has several agents, and none has the name of the session's: {session.name!r};"
                f" choose one: -a {self._options.agent}:NAME"
            )
        return found

    @property
    def keeps_model(self) -> bool:
        """True if the log says which model continues a run that was given one."""
        return bool(self._programmed)

    @property
    def _configuration(self) -> Configuration:
        configuration: Configuration = self._options.configuration
        return configuration

    @property
    def names_model(self) -> bool:
        """True if an option, the agent file or the settings name a model."""
        defined = self._defined is not None and bool(self._defined.models)
        return bool(self._options.model or defined or self._configuration.get("model"))

    def report_sources(self) -> None:
        """Name the files that the run gets its settings from."""
        files = [*self._configuration.files, *([show_path(self._defined.path)] if self._defined else [])]
        if files:
            self._console.note(f"settings from {' and '.join(files)}; `bridle config` lists them")

    def make_resume_budget(self) -> Budget | None:
        """The limits given as options: a resumed run keeps its others."""
        given = make_budget(self._options, Budget(steps=None))
        return given if given.kinds or given.wrap_up is not None else None

    def make_budget(self) -> Budget:
        """The limits of the agent."""
        kinds = (*LIMIT_KINDS, "wrap_up")
        settings = {kind: self._configuration.get(f"budget.{kind}") for kind in kinds}
        given = {kind: limit for kind, limit in settings.items() if limit is not None}
        limits = self._defined.limits if self._defined else {}
        return make_budget(self._options, replace(Budget(), **{**given, **limits}))

    async def make_context(self, state: State) -> object:
        """The context of the current run of a session; None without --context."""
        if self._make_context is None:
            return None
        return await make_run_context(self._make_context, find_owner_of(state))

    def check_tools(self, before: Settings) -> None:
        """Raise `MisuseError` if a session is resumed without its tools or another part that is code."""
        if self._programmed:
            self._check_programmed(before)
            return
        self._check_functions(before)
        ours = (REMEMBER_TOOL, FORGET_TOOL)
        names = ", ".join(spec.name for spec in before.tools if spec.native is None and spec not in ours)
        # guard: tools-not-from-log
        if names and not self._tools and not self._servers:
            raise MisuseError(
                f"this session uses tools ({names}), whose code is not in the log; add --tools FILE,"
                " --mcp FILE or --toolkit, or -a FILE if an agent file names them"
            )
        own = {tool.spec.name for tool in self._tools}
        if before.find_tool(CODE_TOOL_NAME) and self._code_mode is None and CODE_TOOL_NAME not in own:
            raise MisuseError(
                "this session uses code mode; add --code-mode, or -a FILE if an agent file has it"
            )

    def _check_programmed(self, before: Settings) -> None:
        """Raise `MisuseError` if the agent of the Python file lacks a part that the session has, such as a guard."""
        agent = self._find_programmed(before)
        member = _find_member(agent, before.name) or agent
        own, prefixes = member.settings, tuple(source.prefix for source in agent.parts.sources)
        known = {*member.tools, *(spec.name for spec in own.tools)}
        known |= {alias for tool in member.tools.values() for alias in tool.spec.aliases}
        known |= {name for override in before.overrides for name in override.code}  # `resume` asks for those
        lost = {
            part: [name for name in names if name not in list_code_parts(own)[part]]
            for part, names in list_code_parts(before).items()
        }
        lost["tools"] = [
            spec.name
            for spec in before.tools
            if spec.native is None and spec.name not in known and not spec.name.startswith(prefixes)
        ]
        for part, names in lost.items():
            if names:
                raise MisuseError(
                    f"this session has {part} ({', '.join(names)}) that the agent of {self._options.agent} lacks;"
                    " name the Python file of its agent: -a FILE.py, or resume it in Python"
                )

    def _check_functions(self, before: Settings) -> None:
        """Raise `MisuseError` if the agent of the session has functions that only its Python file has."""
        for part, names in list_code_parts(before).items():
            if names:
                raise MisuseError(
                    f"this session has {part} ({', '.join(names)}), whose code is not in the log;"
                    " name the Python file of its agent: -a FILE.py, or resume it in Python"
                )

    def build(
        self, store: Store, session: Settings, *, new_run: bool, compaction: Compaction | None = None
    ) -> Agent[object, object]:
        """Build the agent. Options that are not given are taken from the settings of the session.

        `compaction` replaces the options of the agent file.
        """
        if self._programmed:
            agent: Agent[object, object] = self._find_programmed(session)
            watchers = () if self._options.json else (self._console,)
            return copy_agent(agent, store=store, watchers=watchers, approver=self._approver)
        before = self._complete_settings(session) if new_run or self._defined else session
        options, console, defined = self._options, self._console, self._defined
        report_hosted_tools(before, {tool.spec.name for tool in self._tools}, console)
        policy = self._policy or take_policy_from_log(options, before, console)
        carried = AgentOptions(
            name=before.name,
            max_tokens=before.max_tokens,
            repeats_max=before.repeats_max,
            attempts_max=before.attempts_max,
            chain=before.chain,
            cache_ttl=before.cache_ttl,
            prefix=before.prefix,
            on_truncation=before.on_truncation,
        )
        given: AgentOptions = {**carried, **(defined.options if defined else {}), "memory": before.memory}
        if getattr(options, "max_tokens", None):
            given["max_tokens"] = options.max_tokens
        if compaction is not None:
            given["compaction"] = compaction
        return Agent(
            self._choose_models(before),
            tools=[*self._tools, *self._servers],
            instructions=self._add_project_instructions(before, is_new=not session.model.id),
            budget=self.make_budget(),
            store=store,
            output=self._output
            or (defined.output if defined else None)
            or (None if new_run else take_logged_output(before)),
            sandbox=defined.sandbox if defined else None,
            policy=add_default_rule(policy, options, self._tools),
            code_mode=self._code_mode,
            approver=self._approver,
            thinking=self._choose_thinking(before),
            sampling=(defined.sampling if defined else None) or before.sampling,
            extras=take_extras_from_log(before, console),
            watchers=() if options.json else (console,),
            **given,
        )

    def _add_project_instructions(self, before: Settings, *, is_new: bool) -> list[Any]:
        """The logged instructions, and project files of options or agent file; of settings for a new session."""
        found = take_logged_instructions(before)
        files: Sequence[str | os.PathLike[str]] = getattr(self._options, "project_instructions", ())
        if not files and self._defined is not None:
            files = self._defined.project_files
        # guard: instructions-for-new-sessions
        if not files and is_new:
            files = self._configuration.get_texts("project_instructions")
        if not files:
            return found
        function = make_project_instructions(files)
        return [*(each for each in found if getattr(each, "__name__", "") != function.__name__), function]

    def _choose_thinking(self, before: Settings) -> Thinking | None:
        """The reasoning options of the agent file, else of the session; --effort replaces their effort."""
        thinking = (self._defined.thinking if self._defined else None) or before.thinking
        effort: str | None = getattr(self._options, "effort", None)
        return replace(thinking or Thinking(), effort=effort) if effort else thinking

    def _complete_settings(self, session: Settings) -> Settings:
        """The session's settings with instructions and memory as the options, files and settings say."""
        is_new, configuration, options = not session.model.id, self._configuration, self._options
        instructions = (
            getattr(options, "instructions", "")
            or (self._defined.instructions if self._defined else "")
            or session.instructions
            or (configuration.get_text("instructions") if is_new else "")
        )
        kept = session.templates if instructions == session.instructions else ()
        memory = session.memory
        switch: bool | None = getattr(options, "memory", None)
        if switch is not None:
            memory = (memory or Memory()) if switch else None
        elif self._defined is not None and "memory" in self._defined.options:
            memory = self._defined.options["memory"]
        elif is_new and configuration.get("memory"):
            memory = Memory()
        return replace(session, instructions=instructions, templates=kept, memory=memory)

    def _choose_models(self, before: Settings) -> Sequence[str | Model]:
        """The model and its fallbacks. Only model names are taken from a log: it may come from elsewhere."""
        options, defined = self._options, self._defined
        fallback = tuple(options.fallback)
        if options.model:
            return (options.model, *(fallback or self._default_fallback(before)))
        if defined is not None and defined.models:
            return (*defined.models, *fallback)
        if before.model.id:
            logged = before.models or (before.model,)
            if fallback:
                return (resolve_logged(options, before.model), *fallback)
            return tuple(resolve_logged(options, each) for each in logged)
        model = self._configuration.get_text("model") or choose_default_model(os.environ)
        return (model, *(fallback or self._default_fallback(before)))

    def _default_fallback(self, before: Settings) -> tuple[str, ...]:
        return () if before.model.id else self._configuration.get_texts("fallback")
