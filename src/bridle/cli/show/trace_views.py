"""The trace of a session on a screen: as a tree, and as a timeline with a bar for each span."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from bridle.cli.format.columns import (
    apply_style,
    display_width,
    is_color_output,
    pad_text,
    screen_width,
    shorten_stem,
    wrap_text,
)
from bridle.core.tracing.attributes import CHAT, EXECUTE_TOOL
from bridle.values.record import AttributeValue, SpanEvent
from bridle.values.usage import Usage
from bridle.watchers.console import format_dollars, format_duration, shorten

from .trace_tree import TraceNode

DURATION_WIDTH, COST_WIDTH, START_WIDTH = 8, 9, 9
LABEL_LINES_MAX, ARGUMENTS_MAX = 3, 100
BAR_WIDTH_MIN, TIMELINE_TEXT_MIN = 14, 52
BARS = {CHAT: "█", EXECUTE_TOOL: "▓", "retry": "░", "approval": "░"}
LEGEND = "█ model  ▓ tool  ░ waiting  ▒ other"
OTHER_BAR = "▒"


def format_tree(runs: Sequence[TraceNode]) -> Iterator[str]:
    """Runs, turns, calls and runs inside calls, each with its duration and cost."""
    for number, run in enumerate(runs, 1):
        yield from _format_branch(run, f"run {number}", "", "")


def _format_branch(node: TraceNode, label: str, stem: str, below: str) -> Iterator[str]:
    inner = _list_inner(node)
    yield from _format_row(node, label, stem, below + ("│  " if inner else "   "))
    for index, child in enumerate(inner):
        is_last = index == len(inner) - 1
        here, after = below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")
        if isinstance(child, TraceNode):
            yield from _format_branch(child, "", here, after)
        else:
            yield from _format_note(child, here, after)


def _list_inner(node: TraceNode) -> list[TraceNode | str]:
    """The spans and moments inside a span, in order of time."""
    timed: list[tuple[float, TraceNode | str]] = [(child.span.start, child) for child in node.children]
    timed += [(event.at, _describe_moment(event)) for event in node.span.events]
    found = [each for _, each in sorted(timed, key=lambda pair: pair[0])]
    return [*found, node.problem] if node.problem else found


def _format_row(node: TraceNode, label: str, stem: str, below: str) -> Iterator[str]:
    width, colour = screen_width(), is_color_output()
    stem, below = shorten_stem(stem, width // 3), shorten_stem(below, width // 3)
    usd = node.sum_usd()
    cost = format_cost(usd) if usd is None or usd or node.is_run or node.usage is not None else ""
    right = f"{format_duration(node.seconds):>{DURATION_WIDTH}}  {cost:>{COST_WIDTH}}"
    room = width - max(len(stem), len(below)) - display_width(right) - 2
    first, *rest = wrap_text(label_node(node, label), room, LABEL_LINES_MAX)
    style = "red" if node.span.error else "bold" if node.is_run else ""
    shown = apply_style(first, style, colour and bool(style))
    space = " " * (width - len(stem) - display_width(first) - display_width(right))
    yield f"{stem}{shown}{space}{right}".rstrip()
    yield from (f"{below}{line}" for line in rest)


def _format_note(text: str, stem: str, below: str) -> Iterator[str]:
    width = screen_width()
    stem, below = shorten_stem(stem, width // 3), shorten_stem(below, width // 3)
    first, *rest = wrap_text(text, width - len(stem), LABEL_LINES_MAX)
    yield f"{stem}{first}"
    yield from (f"{below}{line}" for line in rest)


def _describe_moment(event: SpanEvent) -> str:
    facts = ", ".join(_format_fact(name, value) for name, value in event.attributes.items())
    return f"· {_spell_out(event.name)}" + (f": {facts}" if facts else "")


def _format_fact(name: str, value: AttributeValue) -> str:
    match value:
        case tuple():
            return ", ".join(value)
        case str():
            return _spell_out(value)
    return f"{_spell_out(name)} {value:,}"


def _spell_out(name: str) -> str:
    """A name of the log in words."""
    return name.replace("_", " ")


def format_timeline(runs: Sequence[TraceNode]) -> Iterator[str]:
    """A bar for every span of a run, from its start to its end; below a model call its tokens."""
    colour = is_color_output()
    yield apply_style(f"{'start':>{START_WIDTH}} {'duration':>{DURATION_WIDTH}} {LEGEND}", "dim", colour)
    for number, run in enumerate(runs, 1):
        for line in wrap_text(label_node(run, f"run {number}"), screen_width(), LABEL_LINES_MAX):
            yield apply_style(line, "bold", colour)
        seconds = run.seconds
        for depth, node in _list_rows(run):
            yield from _format_bar_row(node, depth, run.span.start, seconds)


def _list_rows(run: TraceNode) -> Iterator[tuple[int, TraceNode]]:
    """The spans that have bars; turns only group others, and a depth is that of runs inside calls."""
    depths = {id(run): 0}
    for _, node in run.walk():
        depth = depths[id(node)]
        if node is not run and not node.span.name.startswith("turn "):
            yield depth, node
        depths.update((id(child), depth + (node is not run and node.is_run)) for child in node.children)


def _format_bar_row(node: TraceNode, depth: int, began: float, seconds: float) -> Iterator[str]:
    """The lines of a span in a run that began at `began` and took `seconds`."""
    width = screen_width()
    bar_width = max(BAR_WIDTH_MIN, (width - TIMELINE_TEXT_MIN) // 2)
    offset = node.span.start - began
    bar = draw_bar(node, offset, seconds, bar_width)
    start = f"+{format_duration(offset)}"
    head = f"{start:>{START_WIDTH}} {format_duration(node.seconds):>{DURATION_WIDTH}} {bar} {'  ' * depth}"
    usage, room = node.usage, width - display_width(head)
    cost = f" {format_cost(node.sum_usd()):>{COST_WIDTH}}" if usage is not None else ""
    first, *rest = wrap_text(label_node(node), room - len(cost), LABEL_LINES_MAX)
    tokens = wrap_text(format_tokens(usage), room, LABEL_LINES_MAX) if usage and usage.total else []
    yield f"{head}{pad_text(first, room - len(cost))}{cost}".rstrip()
    yield from (f"{' ' * display_width(head)}{line}" for line in (*rest, *tokens))


def draw_bar(node: TraceNode, offset: float, whole: float, width: int) -> str:
    """The time of a span within the `whole` time of its run."""
    scale = width / max(whole, 1e-9)
    begin = min(int(offset * scale), width - 1)
    end = min(max(begin + 1, round((offset + node.seconds) * scale)), width)
    mark = BARS.get(node.span.name.partition(" ")[0], OTHER_BAR)
    return "·" * begin + mark * (end - begin) + "·" * (width - end)


def format_cost(usd: Decimal | None) -> str:
    return "unknown" if usd is None else format_dollars(float(usd))


def format_tokens(usage: Usage) -> str:
    """Tokens by cache state; what is 0 is left out."""
    counts = ((usage.input, "new"), (usage.cache_read, "cached"), (usage.cache_write, "written"))
    read = [f"{count:,} {state}" for count, state in counts if count]
    return " · ".join([*read, f"{usage.output:,} out", *(["incomplete"] if usage.incomplete else [])])


def label_node(node: TraceNode, title: str = "") -> str:
    """A span in words; `title` replaces the name of a run."""
    kind, _, name = node.span.name.partition(" ")
    failure = ": ".join(filter(None, (_spell_out(node.span.error), node.span.error_text)))
    end = "not finished" if node.is_open else failure
    match kind:
        case "invoke_agent":
            return join_facts(_label_run(node, title, name), _prompt_text(node) if title else "")
        case "chat":
            attempt = int(str(node.get("bridle.attempt") or 1))
            again = f", attempt {attempt}" if attempt > 1 else ""
            return join_facts(f"model {name}{again}", end)
        case "execute_tool":
            outcome = node.get("bridle.tool.outcome")
            arguments = shorten(str(node.get("gen_ai.tool.call.arguments") or ""), ARGUMENTS_MAX)
            return join_facts(f"{name}({arguments})", end or ("" if outcome == "ok" else str(outcome)))
        case "retry":
            reason = str(node.get("bridle.retry.after") or node.get("bridle.retry.wait_source"))
            return join_facts(f"wait before attempt {node.get('bridle.attempt')}", _spell_out(reason))
        case "approval":
            return join_facts(f"approval of {name}", end or str(node.get("bridle.approval.answer")))
        case "compaction":
            sizes = [node.get(f"bridle.compaction.{when}_tokens") for when in ("before", "after")]
            shorter = " -> ".join(f"{size:,}" for size in sizes if isinstance(size, int))
            return join_facts("compaction", end or (f"{shorter} tokens" if shorter else "without effect"))
        case "turn":
            return node.span.name
        case "store_prompt":
            return "prompt stored at the provider"
    return join_facts(node.span.name, end)


def join_facts(what: str, end: str) -> str:
    return f"{what}: {end}" if end else what


def _label_run(node: TraceNode, title: str, agent: str) -> str:
    ended = f" ({node.stop})" if node.stop else ""
    if title:
        return f"{title}{ended}"
    if node.get("bridle.handed_over"):
        return f"handed over to {agent}{ended}"
    return (
        f"resumed{ended}" if node.get("bridle.resumed") else f"run of {agent}{ended}, session {node.session}"
    )


def _prompt_text(node: TraceNode) -> str:
    messages = node.get("gen_ai.input.messages")
    if not isinstance(messages, str):
        return ""
    parts = msgspec.json.decode(messages)[0]["parts"]
    text = shorten(" ".join(part.get("content", f"[{part['type']}]") for part in parts), ARGUMENTS_MAX)
    return f"“{text}”"


def describe_node(node: TraceNode) -> dict[str, object]:
    """A span as data, with everything inside it."""
    inner = [describe_node(child) for child in node.children]
    return {**_describe_span(node), "children": inner, **({"problem": node.problem} if node.problem else {})}


def describe_rows(runs: Sequence[TraceNode]) -> Iterator[dict[str, object]]:
    """All spans as data, each with its start after that of its run."""
    for run in runs:
        for depth, node in run.walk():
            yield {**_describe_span(node), "offset": node.span.start - run.span.start, "depth": depth}


def _describe_span(node: TraceNode) -> dict[str, object]:
    span = node.span
    return {
        "name": span.name,
        "session": node.session,
        "start": span.start,
        "seconds": node.seconds,
        "usd": node.sum_usd(),
        "usage": node.usage,
        "error": span.error,
        "open": node.is_open,
        "attributes": span.attributes,
        "events": span.events,
    }
