"""Records every request, in every test and in every program that a test starts.

Bridle raises Python's audit events for whatever it records, sends, hears as a simulator, and refuses.  Here
they are listened to and four things are judged, by means that share nothing with what is judged:

    sent elsewhere   a request that no strict simulator heard
    refused          a request that the simulated provider turned away
    untyped          a request that the vendor's published types do not allow (vendor_types.py)
    moved            a request that does not begin as the last one of its session did, to the byte, and
                     nothing in the session's log says so (`SAID`).  A summary is asked for aside
                     (`ModelAsked.summary_of`): of how much of it is up to the harness, and the
                     conversation goes on from where it was

A program that was killed may have sent a request that its simulator did not hear any more: that is excused.

A log is known by the hash of its last record, not by its session's name: names come again in another store,
and a log goes on in another process.  What a program says that a test started is written to a file and
judged here, in the order in which it was written.
"""

import re
from collections import Counter

import msgspec

from tests.suite.listening import ENDED, shorten
from tests.wire.vendors.vendor_types import judge

LISTS = ("messages", "input", "contents")
HEAD = ("model", "tools", "system", "instructions", "systemInstruction", "cachedContent")
SAID = ("PrefixMoved", "PromptStored", "PromptDropped", "ContentRedacted")
"""What begins otherwise from here on: it moved or was removed, or a name stands for it, or no longer does."""
CHAINED = ("previous_response_id", "conversation")
"""Where a provider is told to go on from what it kept, its prompt does not stand in the request."""
BARE = "/responses/compact"
"""A path that takes a conversation without its tools: what is asked there has another beginning."""
MARK = re.compile(rb',?"(?:cache_control|prompt_cache_breakpoint)":\{[^{}]*\}|,?\{"cachePoint":\{[^{}]*\}\}')
"""Where a prompt is to be kept is no part of it."""
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Account:
    """What happened in one test."""

    def __init__(self):
        self.asked, self.heard = Counter(), Counter()
        self.where = {}
        self.refusals, self.moves, self.bodies = [], [], {}
        self.compared = self.told = self.chained = 0
        self._logs = {}
        self._open = {}
        self._sent_by_programs = {}

    def take(self, kind, *told):
        getattr(self, f"_{kind}")(*told)

    def take_from_program(self, process, kind, *told):
        if kind == ENDED:
            self._sent_by_programs.pop(process, None)
            return
        self.take(kind, *told)
        if kind == "asked":
            self._sent_by_programs.setdefault(process, Counter())[hash(told[-1])] += 1

    @property
    def untyped(self):
        """Requests that are not what the vendors' types say, each with what is wrong; every body is judged once."""
        for name, body in self.bodies.items():
            if wrong := judge(self.where[name], body):
                yield f"{self.where[name]} {'; '.join(map(str, wrong[:2]))}"

    @property
    def elsewhere(self):
        """Where requests went that no strict simulator heard, except those of programs that were killed."""
        known = self.heard + sum(self._sent_by_programs.values(), Counter())
        return sorted({self.where[body] for body in self.asked if self.asked[body] > known[body]})

    def _recorded(self, before, now, event, digest, aside=""):
        last, told = self._logs.pop(before, (None, False))
        if event in SAID:
            told = True
            self.told += 1
        self._logs[now] = (last, told)
        if digest:
            self._open[digest] = (now, aside)

    def _asked(self, digest, url, body):
        name = hash(body)
        self.asked[name] += 1
        self.where[name] = url
        self.bodies[name] = body
        log, aside = self._open.get(digest, (None, ""))
        if log not in self._logs or aside == "elsewhere" or (aside and url.endswith(BARE)):
            return
        last, told = self._logs[log]
        prefix = prefix_of(body)
        if aside and prefix is not None and last is not None:
            prefix, last = sorted((prefix[:-1], last), key=len, reverse=True)
        elif not aside:
            self._logs[log] = (prefix, False)
        if prefix is None:
            self.chained += 1
        elif last is not None:
            self.compared += 1
            if not told and prefix[: len(last)] != last:
                self.moves.append(difference(last, prefix))

    def _heard(self, family, body, strict):
        if strict:
            self.heard[hash(body)] += 1

    def _refused(self, family, rule, message, body):
        self.refusals.append((rule, f"{family} {rule or 'request'}: {message}\n    {body}"))


def prefix_of(body):
    """Names of all that a prompt begins with, in order; None when it begins with what is kept elsewhere."""
    try:
        members = _raw(body)
    except msgspec.MsgspecError:
        return (hash(body),)
    if any(name in members for name in CHAINED):
        return None
    if "toolConfig" in members:
        members.update(
            _raw(members["toolConfig"])
        )  # where one wire has its tools, beside which of them to call
    pieces = [strip_marks(members[name]) for name in HEAD if name in members]
    for name in LISTS:
        for item in list_raws(members.get(name)):
            pieces += pieces_of(item)
    return tuple(pieces)


def pieces_of(item):
    """A message piece by piece: what is added to the last one moves nothing that stands before it."""
    members = _raw(item)
    for name in ("content", "parts"):
        inner = list_raws(members.get(name))
        if inner:
            rest = b"".join(bytes(members[other]) for other in members if other != name)
            return [(rest, strip_marks(each)) for each in inner if strip_marks(each)]
    return [strip_marks(item)]


def strip_marks(raw):
    return MARK.sub(b"", bytes(raw))


def list_raws(raw):
    return _raws(raw) if raw is not None and bytes(raw)[:1] == b"[" else []


def difference(last, now):
    at = next((n for n, (one, other) in enumerate(zip(last, now, strict=False)) if one != other), len(now))
    was, is_ = last[at], now[at] if at < len(now) else "(gone)"
    return f"piece {at + 1}:\n    was {shorten(was)}\n    is  {shorten(is_)}"
