"""The conversation of `bridle chat`: one session, the agent that continues it, and what it has cost so far.

The agent is built once and again when a /command changes it. Every turn is a run of its own in the session, so
an interrupted turn leaves what was said in the log, and the next prompt continues from there.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from msgspec.structs import replace

from bridle.cli.agent_builder import AgentBuilder
from bridle.cli.commands.run import encode_result, exit_code, open_resumed_stream, watch_stream
from bridle.cli.format.printing import print_error, print_line, print_text
from bridle.cli.log_access import fold_state, read_session
from bridle.cli.main import EXIT_MISUSE
from bridle.cli.terminal_approver import TerminalApprover
from bridle.core.compaction.strategies import estimated_tokens
from bridle.core.context.token_estimate import window_tokens
from bridle.core.state import Phase, State
from bridle.ports.store import Store
from bridle.run.agent import Agent
from bridle.run.context.shown_deltas import StreamItem
from bridle.run.result import make_result
from bridle.run.stream import Stream
from bridle.values.errors import BridleError
from bridle.values.events import Compacted
from bridle.values.lineage import CrossTenant
from bridle.values.result import Result
from bridle.values.settings import Compaction
from bridle.watchers.console import Console, format_dollars, format_duration, shorten

from .typed_lines import TypedLines

COMPACT_AT, COMPACT_TO, COMPACT_KEEP = 0.9, 0.5, 0.2
"""Shares of the conversation's present size at which /compact starts, ends, and keeps messages unchanged."""


class ChatConversation:
    def __init__(
        self, options: argparse.Namespace, console: Console, store: Store, *, listens: bool = False
    ) -> None:
        """With `listens`, lines typed on the terminal while a run works go to the run."""
        self.options, self.console, self.store = options, console, store
        self.session: str | None = options.session
        self.is_leaving = False
        self.waiting_lines: list[str] = []
        """Lines typed while a run worked that are for afterwards."""
        self.code = 0
        """Exit code of the last turn that had no answer; 0 if all had one."""
        self._typed = TypedLines(self) if listens else None
        approver = TerminalApprover(console, self._typed.read_answer).ask if self._typed else None
        self._builder = AgentBuilder(options, console, approver)
        self._state = State()
        self._out = sys.stdout
        self._spent: float | None = 0.0
        self._compacts_next = self._was_compacted = False

    async def open(self) -> None:
        """Read the session if one is given, and build the agent."""
        options, console = self.options, self.console
        if self.session is not None:
            wanted = CrossTenant(options.tenant) if options.across_tenants and options.tenant else None
            self._state = fold_state(await read_session(self.store, self.session, wanted or options.tenant))
        self._builder.report_sources()
        self.agent = self.build_agent()
        model = self.agent.settings.model
        if model.endpoint.simulated:
            console.note("using the built-in simulator; nothing is sent or charged", "yellow")
        self._show_earlier()

    def build_agent(self, compaction: Compaction | None = None) -> Agent[object, object]:
        """The agent as the options say now; raises `MisuseError` for a model that cannot be used."""
        return self._builder.build(self.store, self._state.settings, new_run=True, compaction=compaction)

    async def read_state(self) -> State | None:
        """State of the session; None before the first prompt."""
        return fold_state(await read_session(self.store, self.session)) if self.session else None

    def plan_compaction(self) -> None:
        """Compact the conversation before the next prompt is sent."""
        self._compacts_next = True

    async def run_prompt(self, prompt: str) -> None:
        """Run one prompt of the user."""
        options = self.options
        owner = self._state.identity.owner or ""
        named = owner if options.tenant is None else options.tenant
        tenant = CrossTenant(named) if options.across_tenants else named
        with self._report_errors():
            agent = await self._choose_agent()
            deltas = options.stream is not False
            await self._run_turn(agent, agent.stream(prompt, self.session, deltas=deltas, tenant=tenant))

    async def resume(self) -> None:
        """Continue the unfinished run of the session."""
        state = await self.read_state()
        if state is None or self.session is None:
            self.console.note("nothing to resume: this chat has no prompt yet")
            return
        if state.phase is Phase.IDLE and state.run.end.stop == "done":
            self.console.note("nothing to resume: the last run is finished")
            return
        with self._report_errors():
            opened = open_resumed_stream(
                self.agent, self._builder, self.session, state.settings, self.options
            )
            paid = make_result(self.session, state, None).cost
            await self._run_turn(self.agent, opened, paid_before=paid)

    async def _run_turn(
        self, agent: Agent[object, object], stream: Stream[object], paid_before: float | None = 0.0
    ) -> None:
        """Run to the end and report; `paid_before` is the cost of a resumed run until now."""
        began = time.monotonic()
        self.session, self._was_compacted = stream.session, False
        # Output of tools must not mix with the answers.
        with redirect_stdout(sys.stderr):
            if self._typed is None:
                result = await watch_stream(stream, self.console, self._notice)
            else:
                async with self._typed.listen(stream):
                    result = await watch_stream(stream, self.console, self._notice)
        if self.console.failed:
            raise self.console.failed
        if self._compacts_next and not self._was_compacted:
            self.console.note("not compacted: a shorter version would save too little", "yellow")
        self._compacts_next = False
        cost = None if result.cost is None or paid_before is None else result.cost - paid_before
        self._print_result(agent, result, cost, time.monotonic() - began)

    def _notice(self, item: StreamItem) -> None:
        self._was_compacted = self._was_compacted or isinstance(item, Compacted)

    async def _choose_agent(self) -> Agent[object, object]:
        """The agent of the next run: with limits that make it compact first, if that was asked for."""
        state = await self.read_state() if self._compacts_next else None
        if state is None:
            return self.agent
        share = min(1.0, estimated_tokens(state) / window_tokens(state))
        shares = {"at": share * COMPACT_AT, "to": share * COMPACT_TO, "keep": share * COMPACT_KEEP}
        return self.build_agent(replace(self.agent.settings.compaction or Compaction(), **shares))

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Report an expected error in one line; the chat goes on."""
        try:
            yield
        except BridleError as error:
            print_error(str(error))
            self.code = EXIT_MISUSE

    def _show_earlier(self) -> None:
        """Show the end of a session that is continued."""
        state, console = self._state, self.console
        messages = state.conversation.transcript.messages
        for message in messages[-2:]:
            if message.text.strip():
                console.note(f"{'you' if message.role == 'user' else message.role}: {shorten(message.text)}")
        if messages and (state.phase is not Phase.IDLE or state.run.end.stop == "waiting"):
            console.note("the last run is unfinished: /resume continues it", "yellow")

    def _print_result(
        self, agent: Agent[object, object], result: Result[object], cost: float | None, seconds: float
    ) -> None:
        settings, console = agent.settings, self.console
        self.code = exit_code(result) or self.code
        self._spent = None if self._spent is None or cost is None else self._spent + cost
        simulated, has_output = settings.model.endpoint.simulated, settings.output is not None
        if self.options.json:
            encoded = encode_result(result, settings.model.name, simulated=simulated, has_output=has_output)
            print_line(encoded, file=self._out, flush=True)
            return
        if result.stop == "waiting":
            console.note(f"{result.reason}; /resume asks again", "yellow")
        elif result.stop == "cancelled":
            console.note("interrupted; what was said is kept, and you can go on", "yellow")
        elif not result.done:
            console.note(f"ended: {result.stop}" + (f": {result.reason}" if result.reason else ""), "red")
        console.note(format_turn(result, cost, self._spent, seconds, simulated=simulated))

    def print_lines(self, lines: Iterator[str] | list[str]) -> None:
        """Print the output of a /command."""
        print_text("\n".join(lines), file=self._out, flush=True)


def format_turn(
    result: Result[object],
    cost: float | None,
    spent: float | None,
    seconds: float,
    *,
    simulated: bool = False,
) -> str:
    """The line after a turn: its cost, the cost of the chat, and the share of the prompt read from the cache."""
    usage = result.usage
    share = f" · {usage.cache_read / usage.prompt:.0%} cached" if usage.prompt else ""
    marked = " (simulated)" if simulated else ""
    return (
        f"{format_dollars(cost)} · chat {format_dollars(spent)}{marked}{share}"
        f" · {usage.total:,} tokens · {format_duration(seconds)}"
    )
