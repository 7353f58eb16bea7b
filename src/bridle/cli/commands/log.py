"""List the messages of a session, or with --tree the session with all its forks.

Message ids (m4) and record numbers are what `bridle session fork SESSION --at` takes. In the tree, messages, steps
and cost of a fork do not include what it shares with its parent.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from bridle.cli.format.columns import (
    apply_style,
    display_width,
    fit_line,
    format_table,
    is_color_output,
    pad_text,
    screen_width,
    shorten_stem,
)
from bridle.cli.format.printing import print_line
from bridle.cli.log_access import add_log_options, format_local_time, read_session, tenant_of, use_log
from bridle.cli.session_names import add_latest_argument
from bridle.core.lineage.compare import describe_end
from bridle.core.recovery.log_repair import iterate_states
from bridle.run.lineage import list_branches
from bridle.values import events as e
from bridle.values.lineage import Branch
from bridle.values.message import Media, Part, Text, ToolCall, ToolResult
from bridle.values.record import Record
from bridle.watchers.console import format_count, format_dollars


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_latest_argument(parser)
    parser.add_argument("--tree", action="store_true", help="show all related forks and where they branch")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    if options.tree:
        family = asyncio.run(_read_family(options))
        lines = [encode_json(family)] if options.json else _format_tree(family, options.session)
    else:
        places = list(_list_places(asyncio.run(_read_records(options))))
        lines = [encode_json(places)] if options.json else _format_places(places)
    for line in lines:
        print_line(line, styles=is_color_output())
    return 0


class LogPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record after which a fork may start."""

    record: int
    at: float
    who: str
    text: str
    message: str = ""
    usd: Decimal | None = None


async def _read_records(options: argparse.Namespace) -> Sequence[Record]:
    async with use_log(options.store) as store:
        return await read_session(store, options.session, tenant_of(options))


async def _read_family(options: argparse.Namespace) -> tuple[Branch, ...]:
    async with use_log(options.store) as store:
        return await list_branches(store, options.session, tenant=tenant_of(options))


def _list_places(records: Sequence[Record]) -> Iterator[LogPlace]:
    known = 0
    for record, state in iterate_states(records):
        messages = state.conversation.transcript.messages
        usd = record.event.usd if isinstance(record.event, e.ModelReplied) else None
        for message in messages[known:]:
            who = "you" if isinstance(record.event, e.Prompted) else message.role
            yield LogPlace(
                record=record.seq,
                at=record.at,
                who=who,
                text=format_parts(message.parts),
                message=message.id,
                usd=usd,
            )
        known = len(messages)
        match record.event:
            case e.Forked(parent=parent, at=at):
                text = f"from {parent} at record {at}"
                yield LogPlace(record=record.seq, at=record.at, who="forked", text=text)
            case e.Configured(settings=settings):
                tools = ", ".join(spec.name for spec in settings.tools) or "no tools"
                text = f"{settings.model.name}, {tools}"
                yield LogPlace(record=record.seq, at=record.at, who="settings", text=text)
            case e.ModelSwitched(model=model):
                yield LogPlace(record=record.seq, at=record.at, who="model", text=model.name)
            case e.RunEnded(reason=reason):
                text = f"{describe_end(state)} {reason}".strip()
                yield LogPlace(record=record.seq, at=record.at, who="ended", text=text)


def format_parts(parts: Sequence[Part]) -> str:
    """The parts of a message in one line."""
    return " · ".join(filter(None, map(_format_part, parts)))


def _format_part(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case ToolCall(name=name, arguments=arguments):
            return f"{name}({arguments})"
        case ToolResult(outcome=outcome, text=text):
            return f"→ {text}" if outcome == "ok" else f"✗ {outcome}: {text}"
        case Media(kind=kind, name=name):
            return f"[{kind} {name}]".replace(" ]", "]")
    return ""


def _format_places(places: Sequence[LogPlace]) -> list[str]:
    width, colour = screen_width(), is_color_output()
    heads = format_table(
        [("", "record", ""), *((p.message, str(p.record), p.who) for p in places)], right=(1,)
    )
    before = max(map(display_width, heads)) + 2
    costs = [format_dollars(float(place.usd)) if place.usd is not None else "" for place in places]
    after = max(map(display_width, costs)) + 2
    lines = [apply_style(heads[0], "dim", colour)]
    for head, place, cost in zip(heads[1:], places, costs, strict=True):
        room = width - before - after
        text = pad_text(fit_line(place.text, room), room) + pad_text(cost, after, right=True)
        line = f"{pad_text(head, before)}{text}".rstrip()
        lines.append(line if place.message else apply_style(line, "dim", colour))
    return lines


def _format_tree(family: Sequence[Branch], named: str) -> list[str]:
    """Two lines per branch: where it starts and how it ended; then model, counts and first text."""
    width, colour = screen_width(), is_color_output()
    ends = format_table([("damaged" if b.read_error else b.end, _branch_cost(b)) for b in family], right=(1,))
    after = max(map(display_width, ends)) + 2
    lines = []
    for branch, (stem, below), end in zip(family, _tree_stems(family, width // 3), ends, strict=True):
        left = f"at {branch.message or 'the start'}, record {branch.at}: " if branch.parent else ""
        name = fit_line(left + branch.session, width - display_width(stem) - after)
        style = "bold" if branch.session == named else "cyan"
        shown = stem + left + apply_style(name.removeprefix(left), style, colour)
        space = " " * (width - after - display_width(stem) - display_width(name))
        lines.append(f"{shown}{space}{pad_text(end, after, right=True)}")
        lines.append(
            f"{below}{apply_style(fit_line(_describe_branch(branch), width - display_width(below)), 'dim', colour)}"
        )
    return [*lines, "", _format_total(family)]


def _describe_branch(branch: Branch) -> str:
    if branch.read_error:
        return branch.read_error
    own = f"{branch.own_messages} of " if branch.parent else ""
    facts = [
        branch.model,
        f"{own}{format_count(branch.messages, 'message')}",
        format_count(branch.steps, "step"),
    ]
    return " · ".join([*facts, f"“{branch.first_text}”"] if branch.first_text else facts)


def _tree_stems(family: Sequence[Branch], width_max: int) -> list[tuple[str, str]]:
    """Tree lines before the two lines of each branch; computed from the last branch up."""
    stems: list[tuple[str, str]] = []
    open_at: dict[int, bool] = {}
    """By depth: True if another branch of the same parent follows."""
    for branch in reversed(family):
        depth = branch.depth
        trunk = "".join("│  " if open_at.get(level) else "   " for level in range(1, depth))
        elbow = "" if not depth else "├─ " if open_at.get(depth) else "└─ "
        side = "" if not depth else "│  " if open_at.get(depth) else "   "
        children = "│  " if open_at.get(depth + 1) else "   "
        stems.append(
            (shorten_stem(trunk + elbow, width_max), shorten_stem(trunk + side + children, width_max))
        )
        open_at = {level: still for level, still in open_at.items() if level < depth}
        open_at[depth] = True
    return stems[::-1]


def _branch_cost(branch: Branch) -> str:
    return "" if branch.read_error else format_dollars(None if branch.usd is None else float(branch.usd))


def _format_total(family: Sequence[Branch]) -> str:
    known = [branch.usd for branch in family if not branch.read_error]
    total = None if None in known else sum(float(usd) for usd in known if usd is not None)
    since = format_local_time(min(branch.created_at for branch in family))
    many = "1 session, no branches" if len(family) == 1 else f"{len(family)} sessions"
    return f"{many} · {format_dollars(total)} total · since {since}"


def encode_json(what: object) -> str:
    return msgspec.json.Encoder(decimal_format="number").encode(what).decode()
