"""An oracle for the prompt cache: computes the expected report without incremental state.

Nothing here is shared with the simulator but the estimate of a text's tokens.  A request is an abstract
thing (tools, system, turns, settings, a time), not a wire body.  There are no hashes and no store of
entries: whether something is cached when a request comes is decided from the list of all requests that
came before it, by the definition of each way of caching.
"""

import json
from dataclasses import dataclass, field
from functools import cache

from bridle.sim.cache.token_estimate import (
    TOKEN_PATTERN,
    TOKENS_PER_CALL,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    TOKENS_PER_REQUEST,
    TOKENS_PER_TOOL,
    count_tokens,
)

SECONDS = {"5m": 300, "1h": 3_600, "30m": 1_800, "12h": 43_200, "24h": 86_400}


@dataclass(frozen=True)
class Piece:
    kind: str
    """text, image, call, result, thought"""
    text: str
    id: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Turn:
    role: str
    """user, assistant, tool"""
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Ask:
    time: float
    account: str = "a"
    tools: tuple[Piece, ...] = ()
    system: tuple[Piece, ...] = ()
    turns: tuple[Turn, ...] = ()
    settings: dict = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """One provider's way, and the facts about its model."""

    family: str
    model: str
    way: str
    minimum: int
    step: int = 0
    seconds: float = 300
    runs: bool = False
    """Calls in a row, or results in a row, are one position."""
    forgets_thoughts: bool = False
    thinking: str = "adaptive"
    """What is meant when the request does not say."""
    effort: str = "high"


@dataclass(frozen=True)
class Cell:
    """One block as the oracle sees it."""

    section: int
    face: tuple
    tokens: int
    lead: int = 0
    text: str = ""
    mark: str = ""
    kind: str = ""
    end: bool = False


def figures(world: World, asks: list[Ask]) -> list[tuple[int, int, int, int]]:
    """(fresh, read, written, of which for long), by request."""
    return (_everywhere if world.way == "prefix" else _somewhere)(world, asks)


# --- everywhere: compare with every earlier request, token by token ------------------------------


def _everywhere(world, asks):
    told = []
    lines = [_cells(world, ask) for ask in asks]
    for now, ask in enumerate(asks):
        total = TOKENS_PER_REQUEST + sum(cell.tokens for cell in lines[now])
        read = 0
        for then in range(now):
            earlier = asks[then]
            lasts = SECONDS.get(earlier.settings.get("kept", ""), world.seconds)
            if earlier.time + lasts <= ask.time or _scope(world, earlier) != _scope(world, ask):
                continue
            if _spoils(world, earlier) != _spoils(world, ask):
                continue
            read = max(read, _count_common(world, lines[then], lines[now]))
        told.append((total - read, read, 0, 0))
    return told


def _count_common(world, before, after):
    if not world.step:
        same = 0
        for one, other in zip(before, after, strict=False):
            if one.face != other.face:
                break
            same += one.tokens
        return same if same >= world.minimum else 0
    same = 0
    for one, other in zip(before, after, strict=False):
        if one.face == other.face:
            same += one.tokens
            continue
        if _start(one) == _start(other):
            same += one.lead
            for word, another in zip(_tokens(one.text), _tokens(other.text), strict=False):
                if word != another:
                    break
                same += 1
        break
    same -= same % world.step
    return same if same >= world.minimum else 0


def _start(cell):
    """What a block is before its words: the name of a tool is among its words, and a picture has none."""
    kind, who, name, text = cell.face[:4]
    return kind, who, "" if kind == "tool" else name, text if kind == "image" else "", cell.lead


# --- somewhere: by definition, going back through the requests ------------------------------------


def _somewhere(world, asks):
    lines = [_cells(world, ask) for ask in asks]
    lengths = [[sum(cell.tokens for cell in line[: at + 1]) for at in range(len(line))] for line in lines]
    spoils = [_spoils(world, ask) for ask in asks]

    @cache
    def shared(number, then):
        """How many blocks, from the first, two requests have in common."""
        if _scope(world, asks[number]) != _scope(world, asks[then]):
            return 0
        same = 0
        for one, other in zip(lines[number], lines[then], strict=False):
            until = one.section + 1
            if one.face != other.face or spoils[number][:until] != spoils[then][:until]:
                break
            same += 1
        return same

    def marked(number):
        """Where this request wants to be kept, and for how long, if it is long enough there."""
        line = lines[number]
        wanted = _wanted(world, asks[number], line)
        return {at: ttl for at, ttl in wanted.items() if lengths[number][at] >= world.minimum}

    @cache
    def finds(number):
        found = []
        for search in _searches(world, asks[number], lines[number]):
            for at in search:
                if lengths[number][at] >= world.minimum and alive(at, number):
                    found.append(at)
                    break
        return tuple(found)

    @cache
    def alive(at, number):
        """Whether what this request has up to this block is kept when it comes."""
        until, lasts = None, 0
        for then in range(number):
            if shared(number, then) <= at:
                continue
            time, wants = asks[then].time, marked(then)
            if until is not None and until <= time:
                until = None
            if until is None:
                if at not in wants:
                    continue
                lasts = SECONDS[wants[at]]
                until = time + lasts
            elif at in wants or at in finds(then):
                until = time + lasts
        return until is not None and until > asks[number].time

    told = []
    for number, line in enumerate(lines):
        total = TOKENS_PER_REQUEST + sum(cell.tokens for cell in line)
        read = max((lengths[number][at] for at in finds(number)), default=0)
        covered, long = read, 0
        for at, ttl in sorted(marked(number).items()):
            more = max(0, lengths[number][at] - covered)
            covered += more
            long += more if ttl in ("1h", "12h", "24h") else 0
        told.append((total - covered, read, covered - read, long))
    return told


def _wanted(world, ask, line):
    explicit = [at for at, cell in enumerate(line) if cell.mark]
    if world.way == "marks":
        return {at: line[at].mark for at in explicit}
    own = [at for at, cell in enumerate(line) if cell.end][-1:] if not ask.settings.get("explicit") else []
    wanted = {at: ask.settings.get("kept", "") or "30m" for at in own}
    for at in explicit[-3:] if own else explicit[-4:]:
        wanted[at] = line[at].mark
    return wanted


def _searches(world, ask, line):
    explicit = [at for at, cell in enumerate(line) if cell.mark]
    if world.way == "marks":
        for at in explicit:
            seen, search = 0, []
            for back in range(at, -1, -1):
                follows = back < at and world.runs and line[back].kind == line[back + 1].kind
                seen += not (follows and line[back].kind in ("call", "result"))
                if seen > 20:
                    break
                search.append(back)
            yield search
        return
    places = set(explicit[:2]) | set(explicit[-50:])
    if not ask.settings.get("explicit"):
        ends = [at for at, cell in enumerate(line) if cell.end]
        places |= set(ends[-21:])
    yield sorted(places, reverse=True)


# --- what a request is to each family --------------------------------------------------------------


def _scope(world, ask):
    return ask.account


def _spoils(world, ask):
    """By section: whatever else has to be the same."""
    said = ask.settings
    if world.family in ("anthropic", "bedrock_converse"):
        images = any(piece.kind == "image" for turn in ask.turns for piece in turn.pieces)
        return (
            "",
            (said.get("speed") or "standard",),
            (
                said.get("choice") if said.get("choice") != "auto" else None,
                said.get("thinking") if said.get("thinking") != world.thinking else None,
                said.get("effort") or world.effort,
                images,
            ),
        )
    if world.family == "gemini":
        return ("", "", "")
    names = {"effort": None, "verbosity": "medium", "tier": "auto", "key": None, "parallel": True}
    meant = (default if said.get(name) is None else said[name] for name, default in names.items())
    return (tuple(meant), "", "")


def _cells(world, ask):
    cells = [_cell(0, "tool", "", tool, TOKENS_PER_TOOL, world) for tool in ask.tools]
    instructed = world.family == "openai_responses" and ask.settings.get("instructions")
    if world.family in ("anthropic", "bedrock_converse", "gemini") or instructed:
        cells += [_cell(1, "text", "system", piece, 0, world) for piece in ask.system]
    else:
        for piece in ask.system:
            last = piece is ask.system[-1]
            cells.append(_cell(2, "text", "system", piece, TOKENS_PER_MESSAGE, world, end=last))
    begins = max((at for at, turn in enumerate(ask.turns) if turn.role == "user"), default=0)
    for at, turn in enumerate(ask.turns):
        pieces = [
            piece
            for piece in turn.pieces
            if not (piece.kind == "thought" and world.forgets_thoughts and at < begins)
        ]
        for number, piece in enumerate(pieces):
            opens = number == 0 or _opens(world, turn, pieces[number - 1], piece)
            end = turn.role in ("user", "tool") and number == len(pieces) - 1
            lead = TOKENS_PER_MESSAGE * opens + _lead(world, piece)
            cells.append(_cell(2, piece.kind, turn.role, piece, lead, world, end=end))
    return cells


def _opens(world, turn, before, piece):
    """Whether this piece begins a message of its own inside a turn."""
    if world.family == "openai_chat":
        return turn.role == "tool"
    if world.family == "openai_responses":
        return turn.role == "tool" or (turn.role == "assistant" and not before.kind == piece.kind == "text")
    return False


def _lead(world, piece):
    if piece.kind == "result":
        return TOKENS_PER_MESSAGE if world.family != "openai_chat" else 0
    return {"call": TOKENS_PER_CALL, "image": TOKENS_PER_IMAGE}.get(piece.kind, 0)


def _cell(section, kind, who, piece, lead, world, end=False):
    text = counted_text(world, kind, piece)
    face = (kind, who, piece.id, piece.text)
    return Cell(section, (*face, lead), lead + len(_tokens(text)), lead, text, piece.mark, kind, end)


@cache
def _tokens(text):
    """Each token with the blank before it."""
    cuts = [match.end() for match in TOKEN_PATTERN.finditer(text)]
    assert len(cuts) == count_tokens(text)
    return [text[start:cut] for start, cut in zip([0, *cuts], cuts, strict=False)]


def counted_text(world, kind, piece):
    """The words of a piece that are counted."""
    if kind == "image":
        return ""
    if kind == "call":
        return "look " + (_compact({"q": piece.text}))
    if kind == "tool":
        return _compact(definition(world.family, piece))
    if kind == "result" and world.family == "gemini":
        return "look " + _compact({"output": piece.text})
    return piece.text


def definition(family, piece):
    schema = {"type": "object", "properties": {}}
    if family == "anthropic":
        return {"name": piece.id, "description": piece.text, "input_schema": schema}
    if family == "bedrock_converse":
        inside = {"name": piece.id, "description": piece.text, "inputSchema": {"json": schema}}
        return {"toolSpec": inside}
    inside = {"name": piece.id, "description": piece.text, "parameters": schema}
    if family == "openai_responses":
        return {"type": "function", **inside}
    return {"type": "function", "function": inside} if family == "openai_chat" else inside


def _compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
