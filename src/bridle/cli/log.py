"""List the places of a session, message by message, or with --tree the whole family it belongs to.

A place is what `bridle fork SESSION --at PLACE` takes: a message (m4) or the number of a record.  In the tree
every branch hangs where it left the other one; messages, steps and cost are its own, without what it shares.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from ..core.comparing import ending
from ..core.mending import states
from ..run.lineage import branches
from ..values import event as e
from ..values.lineage import Branch
from ..values.parts import Media, Part, Text, ToolCall, ToolResult
from ..values.record import Record
from ..watchers.console import dollars, plural
from .columns import cells, cut, in_colour, padded, screen_width, styled, table
from .logs import local_time, read_session
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import say


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    parser.add_argument("--tree", action="store_true", help="all branches of its family, and where they part")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_tenant_option(parser)
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if options.tree:
        family = asyncio.run(_family(options))
        lines = [as_json(family)] if options.json else _tree(family, options.session)
    else:
        places = list(_places(asyncio.run(_records(options))))
        lines = [as_json(places)] if options.json else _listed(places)
    for line in lines:
        say(line, styles=in_colour())
    return 0


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened at a record that a fork may begin behind."""

    record: int
    at: float
    who: str
    text: str
    message: str = ""
    usd: Decimal | None = None


async def _records(options: argparse.Namespace) -> Sequence[Record]:
    store = open_log(options.store, to_read=True)
    try:
        return await read_session(store, options.session, tenant_of(options))
    finally:
        await store.close()


async def _family(options: argparse.Namespace) -> tuple[Branch, ...]:
    store = open_log(options.store, to_read=True)
    try:
        return await branches(store, options.session, tenant=tenant_of(options))
    finally:
        await store.close()


def _places(records: Sequence[Record]) -> Iterator[Place]:
    known = 0
    for record, state in states(records):
        messages = state.transcript.messages
        usd = record.event.usd if isinstance(record.event, e.ModelReplied) else None
        for message in messages[known:]:
            who = "you" if isinstance(record.event, e.Prompted) else message.role
            yield Place(
                record=record.seq,
                at=record.at,
                who=who,
                text=told(message.parts),
                message=message.id,
                usd=usd,
            )
        known = len(messages)
        match record.event:
            case e.Forked(parent=parent, at=at):
                text = f"from {parent} at record {at}"
                yield Place(record=record.seq, at=record.at, who="forked", text=text)
            case e.Configured(settings=settings):
                tools = ", ".join(spec.name for spec in settings.tools) or "no tools"
                text = f"{settings.model.name}, {tools}"
                yield Place(record=record.seq, at=record.at, who="settings", text=text)
            case e.ModelSwitched(model=model):
                yield Place(record=record.seq, at=record.at, who="model", text=model.name)
            case e.RunEnded(reason=reason):
                text = f"{ending(state)} {reason}".strip()
                yield Place(record=record.seq, at=record.at, who="ended", text=text)


def told(parts: Sequence[Part]) -> str:
    """What was said, in one line."""
    return " · ".join(filter(None, map(_part, parts)))


def _part(part: Part) -> str:
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


def _listed(places: Sequence[Place]) -> list[str]:
    width, colour = screen_width(), in_colour()
    heads = table([("", "record", ""), *((p.message, str(p.record), p.who) for p in places)], right=(1,))
    before = max(map(cells, heads)) + 2
    costs = [dollars(float(place.usd)) if place.usd is not None else "" for place in places]
    after = max(map(cells, costs)) + 2
    lines = [styled(heads[0], "dim", colour)]
    for head, place, cost in zip(heads[1:], places, costs, strict=True):
        room = width - before - after
        text = padded(cut(place.text, room), room) + padded(cost, after, right=True)
        line = f"{padded(head, before)}{text}".rstrip()
        lines.append(line if place.message else styled(line, "dim", colour))
    return lines


def _tree(family: Sequence[Branch], named: str) -> list[str]:
    """Two lines a branch: where it left and how it ended, and below that who answered and what was said."""
    width, colour = screen_width(), in_colour()
    ends = table([("damaged" if b.trouble else b.ended, _cost(b)) for b in family], right=(1,))
    after = max(map(cells, ends)) + 2
    lines = []
    for branch, (stem, below), end in zip(family, _stems(family, width // 3), ends, strict=True):
        left = f"at {branch.message or 'the beginning'}, record {branch.at}: " if branch.parent else ""
        name = cut(left + branch.session, width - cells(stem) - after)
        style = "bold" if branch.session == named else "cyan"
        shown = stem + left + styled(name.removeprefix(left), style, colour)
        space = " " * (width - after - cells(stem) - cells(name))
        lines.append(f"{shown}{space}{padded(end, after, right=True)}")
        lines.append(f"{below}{styled(cut(_about(branch), width - cells(below)), 'dim', colour)}")
    return [*lines, "", _sum(family)]


def _about(branch: Branch) -> str:
    if branch.trouble:
        return branch.trouble
    own = f"{branch.own_messages} of " if branch.parent else ""
    facts = [branch.model, f"{own}{plural(branch.messages, 'message')}", plural(branch.steps, "step")]
    return " · ".join([*facts, f"“{branch.words}”"] if branch.words else facts)


def _stems(family: Sequence[Branch], width_max: int) -> list[tuple[str, str]]:
    """What stands before the two lines of each branch; drawn from below, where one sees what follows."""
    stems: list[tuple[str, str]] = []
    open_at: dict[int, bool] = {}
    """By depth: whether a branch at that depth still comes below, under the same owner."""
    for branch in reversed(family):
        depth = branch.depth
        trunk = "".join("│  " if open_at.get(level) else "   " for level in range(1, depth))
        elbow = "" if not depth else "├─ " if open_at.get(depth) else "└─ "
        side = "" if not depth else "│  " if open_at.get(depth) else "   "
        children = "│  " if open_at.get(depth + 1) else "   "
        stems.append((_short(trunk + elbow, width_max), _short(trunk + side + children, width_max)))
        open_at = {level: still for level, still in open_at.items() if level < depth}
        open_at[depth] = True
    return stems[::-1]


def _short(stem: str, width_max: int) -> str:
    """Of a stem from very far up, the end."""
    return stem if len(stem) <= width_max else "…" + stem[1 - width_max :]


def _cost(branch: Branch) -> str:
    return "" if branch.trouble else dollars(None if branch.usd is None else float(branch.usd))


def _sum(family: Sequence[Branch]) -> str:
    known = [branch.usd for branch in family if not branch.trouble]
    total = None if None in known else sum(float(usd) for usd in known if usd is not None)
    since = local_time(min(branch.created_at for branch in family))
    many = "1 session, no branches" if len(family) == 1 else f"{len(family)} sessions"
    return f"{many} · {dollars(total)} in all · since {since}"


def as_json(what: object) -> str:
    return msgspec.json.Encoder(decimal_format="number").encode(what).decode()
