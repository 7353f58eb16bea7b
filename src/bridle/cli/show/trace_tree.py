"""The spans of a session as a tree, with the runs inside its tools.

core/tracing makes the spans, the same that telemetry exports. Runs inside tools have sessions of their own: each is
read from the log and becomes a child of the call that it ran in.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from bridle.core.recovery.log_repair import fold_log
from bridle.core.tracing.attributes import CHAT, COST, INVOKE_AGENT, OPERATION
from bridle.core.tracing.session_trace import SessionTrace
from bridle.ports.store import Store
from bridle.values.budget import SubrunStarted
from bridle.values.errors import Corrupt
from bridle.values.record import AttributeValue, Record, Span
from bridle.values.usage import Usage

CALL_ID = "gen_ai.tool.call.id"
USAGE_FIELDS = {
    "input": "gen_ai.usage.input_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}


class TraceNode(msgspec.Struct):
    """A span and the spans inside it."""

    span: Span
    session: str
    is_open: bool = False
    """True if the log does not contain its end."""
    children: list["TraceNode"] = []
    problem: str = ""
    """Why a run inside this call cannot be shown."""

    def get(self, attribute: str) -> AttributeValue | None:
        return self.span.attributes.get(attribute)

    @property
    def is_run(self) -> bool:
        return self.get(OPERATION) == INVOKE_AGENT

    @property
    def end(self) -> float:
        """Its end, or that of the last span inside it: a run that waited ends when it was resumed and done."""
        return max([self.span.end, *(child.end for child in self.children)])

    @property
    def seconds(self) -> float:
        return self.end - self.span.start

    @property
    def stop(self) -> str:
        """The end of a run, of its last resume if there was one."""
        parts = [child for child in self.children if child.get("bridle.resumed")]
        if parts:
            return parts[-1].stop
        return "not finished" if self.is_open else str(self.get("bridle.stop") or "")

    @property
    def usage(self) -> Usage | None:
        """Tokens of a model call."""
        counts = {name: self.get(attribute) or 0 for name, attribute in USAGE_FIELDS.items()}
        if USAGE_FIELDS["input"] not in self.span.attributes:
            return None
        usage = msgspec.convert(counts, Usage)
        return msgspec.structs.replace(
            usage,
            input=usage.input - usage.cache_read - usage.cache_write,
            incomplete=bool(self.get("bridle.usage.incomplete")),
        )

    def sum_usd(self) -> Decimal | None:
        """Dollars of all model calls inside; None if one of them is unknown."""
        if self.get(OPERATION) == CHAT or self.usage is not None:
            own = self.get(COST)
            return Decimal(str(own or 0)) if own is not None or self.is_open else None
        found = [child.sum_usd() for child in self.children]
        known = [usd for usd in found if usd is not None]
        return sum(known, Decimal(0)) if len(known) == len(found) else None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "TraceNode"]]:
        """This node and all inside it, each with its depth, in the order of their starts."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


async def read_trace(
    store: Store, session: str, records: Sequence[Record], seen: frozenset[str] = frozenset()
) -> list[TraceNode]:
    """The runs of a session, each with everything inside it."""
    nodes = _list_nodes(session, records)
    found = {node.span.span_id: node for node in nodes}
    roots: list[TraceNode] = []
    for node in nodes:
        parent = found.get(node.span.parent_id)
        (roots if parent is None else parent.children).append(node)
    started = [record.event for record in records if isinstance(record.event, SubrunStarted)]
    for call_id, inner in dict.fromkeys((event.call_id, event.session) for event in started):
        calls = [node for node in nodes if node.get(CALL_ID) == call_id]
        if calls and inner not in seen:
            await _add_subrun(store, calls, inner, seen | {session})
    return roots


def _list_nodes(session: str, records: Sequence[Record]) -> list[TraceNode]:
    trace, spans = SessionTrace(session, str), list[Span]()
    fold_log(records, lambda record, before, after: spans.extend(trace.apply(record, before, after)))
    nodes = [TraceNode(span, session) for span in spans]
    nodes += [TraceNode(span, session, is_open=True) for span in trace.list_open()]
    return sorted(nodes, key=lambda node: (node.span.start, node.span.end))


async def _add_subrun(store: Store, calls: Sequence[TraceNode], session: str, seen: frozenset[str]) -> None:
    """Add the runs of a session to the calls they ran in; `calls` are the attempts at one call."""
    outer, call_id = calls[0].session, calls[0].get(CALL_ID)
    try:
        records = await store.read(session)
    except Corrupt as error:
        calls[-1].problem = f"session {session}: {error}"
        return
    if not records:
        calls[-1].problem = f"session {session} is not in this log"
    for run in await read_trace(store, session, records, seen):
        if run.get("bridle.parent.session") == outer and run.get("bridle.parent.call_id") == call_id:
            before = [call for call in calls if call.span.start <= run.span.start]
            (before or calls)[-1].children.append(run)
