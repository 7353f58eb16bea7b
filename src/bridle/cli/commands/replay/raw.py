"""Show the requests that a session sent: address, headers, body, reply, and the difference to the request before.

A request is rebuilt from the log, and its recorded digest proves that it is the one that was sent. Credentials are
never shown: a header has the name of the variable instead. Without --call, all model calls are listed.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from shlex import quote

import msgspec

from bridle.cli.format.printing import print_json, print_line, print_text
from bridle.cli.log_access import add_log_options, read_session, tenant_of, use_log
from bridle.cli.session_names import add_latest_argument
from bridle.ports.store import Store
from bridle.run.agent import Agent
from bridle.run.replay.changed_settings import AgentSettingsNow
from bridle.run.replay.replay_session import make_wire
from bridle.run.replay.sent_calls import CallReader, is_addressable, read_call
from bridle.values.errors import MisuseError
from bridle.values.lineage import RecordedCall
from bridle.values.record import Record
from bridle.values.redaction import is_credential_name
from bridle.watchers.console import format_count, shorten

from .replay import load_session_agent

NOT_PROVEN = 1
_CREDENTIAL_HEADER = re.compile(r"[a-z-]+: (?:Bearer )?\$[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIAL_USER = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*:\$[A-Za-z_][A-Za-z0-9_]*")
"""A log may come from elsewhere: the shell expands text of these two forms and no other."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_latest_argument(parser)
    add("--call", metavar="N", help="number of the model call, with retries; `last` for the latest")
    add("-a", "--agent", metavar="FILE.toml", help="agent file: supplies values that the log does not hold")
    add(
        "--stream", action="store_true", help="show the streamed form if the log does not record the delivery"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--curl", action="store_true", help="print a curl command; keys are names of variables")
    form.add_argument("--body", action="store_true", help="write only the bytes of the request's body")
    form.add_argument(
        "--reply", action="store_true", help="write only the bytes of the reply, if they were kept"
    )
    form.add_argument("--diff", action="store_true", help="print only the difference to the request before")
    form.add_argument("--json", action="store_true", help="print one JSON object, or one per call")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    return asyncio.run(_show(options, load_session_agent(options)))


async def _show(options: argparse.Namespace, agent: Agent[object, object] | None) -> int:
    async with use_log(options.store) as store:
        records = await read_session(store, options.session, tenant_of(options))
        if options.call is None:
            return _list_calls(options, records, agent)
        call = await read_call(
            options.session, _parse_number(options.call), store=store, agent=agent, stream=options.stream
        )
        await _print_call(options, call, records, store)
        return 0 if call.is_proven else NOT_PROVEN


def _parse_number(given: str) -> int:
    if given == "last":
        return -1
    if not given.isdigit() or int(given) == 0:
        raise MisuseError(f"--call is the number of a model call, from 1, or `last`; not {given!r}")
    return int(given)


def _list_calls(
    options: argparse.Namespace, records: Sequence[Record], agent: Agent[object, object] | None
) -> int:
    for name in ("curl", "body", "reply", "diff"):
        if getattr(options, name):
            raise MisuseError(
                f"--{name} needs the number of a call: bridle show {options.session} --as raw --call 1 --{name}"
            )
    now = AgentSettingsNow(agent) if agent is not None else None
    count = proven = 0
    for call in CallReader(make_wire(now), stream=options.stream).read(records):
        count, proven = count + 1, proven + call.is_proven
        if options.json:
            print_json(_describe_call(call, b"", None, None))
            continue
        mark = "proven" if call.is_proven else "NOT PROVEN"
        tries = f" attempt {call.attempt}" if call.attempt > 1 else ""
        aside = " summary" if call.is_summary else ""
        size = f"{len(call.body):,} bytes"
        print_line(
            f"{call.number:>3}  record {call.seq:<4} step {call.step}{tries}{aside}  {call.model}  {size}"
            f"  {mark}  {shorten(call.stop)}"
        )
        if call.problem:
            print_line(f"     {call.problem}")
    if not options.json:
        print_line(f"{format_count(count, 'model call')}, {proven} proven by digest")
    return 0 if proven == count else NOT_PROVEN


async def _print_call(
    options: argparse.Namespace, call: RecordedCall, records: Sequence[Record], store: Store
) -> None:
    raw = call.raw
    reply = await store.get_blob(raw.reply) if raw is not None and raw.reply else None
    request = await store.get_blob(raw.request) if raw is not None and raw.request else None
    outcome = records[call.outcome_seq - 1] if call.outcome_seq else None
    if options.json:
        print_json(_describe_call(call, call.body, reply, outcome))
    elif options.body or options.reply:
        if options.reply and reply is None:
            raise MisuseError(_explain_missing_reply(call))
        data = call.body if options.body else reply or b""
        if sys.stdout.isatty():
            print_text(data.decode("utf-8", "backslashreplace"))
        else:
            sys.stdout.buffer.write(data)
    elif options.curl:
        print_text(make_curl(call))
    elif options.diff:
        for line in _format_difference(call, whole=True):
            print_line(line)
    else:
        for line in _format_call(call, request, reply, outcome):
            print_text(line)


def _describe_call(
    call: RecordedCall, body: bytes, reply: bytes | None, outcome: Record | None
) -> dict[str, object]:
    described: dict[str, object] = msgspec.to_builtins(call)
    described["body_bytes"] = len(call.body)
    described["body"] = _read_json(body) if body else None
    described["raw_reply"] = reply.decode("utf-8", "backslashreplace") if reply is not None else None
    described["event"] = msgspec.Raw(outcome.data) if outcome is not None else None
    return described


def _read_json(body: bytes) -> object:
    try:
        return msgspec.Raw(msgspec.json.format(body, indent=-1))
    except msgspec.DecodeError:
        return body.decode("utf-8", "backslashreplace")


def _format_call(
    call: RecordedCall, request: bytes | None, reply: bytes | None, outcome: Record | None
) -> Iterator[str]:
    tries = f" · attempt {call.attempt}" if call.attempt > 1 else ""
    aside = " · summary of the conversation" if call.is_summary else ""
    yield f"call {call.number} · record {call.seq} · step {call.step}{tries}{aside} · {call.model}"
    yield f"digest {call.digest}: " + (
        "proven, the rebuilt request has it" if call.is_proven else f"NOT PROVEN: {call.problem}"
    )
    if request is not None:
        kept = request == call.body[: len(request)]
        yield f"kept bytes of the request: {'equal to the rebuilt ones' if kept else 'they differ'}"
    if call.is_streamed is None:
        yield "delivery: not recorded; --stream shows the streamed form (keep_raw records it)"
    yield ""
    yield f"{call.method} {call.url}"
    yield from (f"{name}: {value}" for name, value in call.headers)
    if call.signing:
        yield f"signed when sent, with ${call.signing[2]} and ${call.signing[3]}"
    yield ""
    yield _format_json(call.body)
    yield ""
    yield from _format_difference(call, whole=False)
    yield ""
    if outcome is None:
        yield "reply: none is recorded"
        return
    yield f"reply: {call.outcome} (record {call.outcome_seq}): {call.stop}"
    if reply is None:
        yield f"bytes: {_explain_missing_reply(call)}"
    else:
        raw = call.raw
        assert raw is not None
        cut = f", the first {len(reply):,} of {raw.reply_bytes:,}" if len(reply) < raw.reply_bytes else ""
        yield f"bytes as received (status {raw.status}, {len(reply):,} bytes{cut}):"
        yield reply.decode("utf-8", "backslashreplace")
    yield "decoded:"
    yield _format_json(outcome.data)


def _format_json(data: bytes) -> str:
    try:
        return msgspec.json.format(data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode("utf-8", "backslashreplace")


def _format_difference(call: RecordedCall, *, whole: bool) -> Iterator[str]:
    found = call.difference
    if found is None:
        yield "first request" if call.number == 1 else "equal to the request before"
        return
    place = "" if found.place == found.layer else f", {found.place}"
    yield f"difference to call {call.number - 1}: {found.layer}{place}"
    yield from (f"  {change}" for change in found.changes)
    if found.first_byte >= 0:
        yield f"  first differing byte: {found.first_byte:,} of {found.body_bytes:,}"
    if whole:
        yield from found.diff


def _explain_missing_reply(call: RecordedCall) -> str:
    if call.raw is not None and call.raw.withheld:
        return f"not kept: {call.raw.withheld}"
    return "the bytes of this reply were not kept; Agent(keep_raw=KeepRaw()) keeps those of later ones"


def make_curl(call: RecordedCall) -> str:
    """A command that sends the request; credentials are variables of the shell."""
    if not is_addressable(call.url):
        raise MisuseError(
            f"{call.model} is the built-in simulator, which has no address; `bridle sim` serves one"
        )
    # Brackets in an address would be patterns, for which curl sends several requests.
    globs = " --globoff" if set(call.url) & set("[]{}") else ""
    lines = [f"curl -X {quote(call.method)}{globs} {quote(call.url)}"]
    for name, value in call.headers:
        is_safe = is_credential_name(name) and _CREDENTIAL_HEADER.fullmatch(f"{name}: {value}")
        # guard: curl-expands-nothing
        lines.append("-H " + _quote_word(f"{name}: {value}", is_expanded=bool(is_safe)))
    if call.signing:
        service, region, key, secret = call.signing
        user = f"${key}:${secret}"
        lines.append("--aws-sigv4 " + quote(f"aws:amz:{region}:{service}"))
        lines.append("--user " + _quote_word(user, is_expanded=bool(_CREDENTIAL_USER.fullmatch(user))))
    # Unlike --data-binary, --data-raw reads no file.
    lines.append("--data-raw " + quote(call.body.decode("utf-8", "backslashreplace")))
    return " \\\n  ".join(lines)


def _quote_word(text: str, *, is_expanded: bool) -> str:
    """The text as one word of the shell, which expands its variables only if it is safe."""
    return f'"{text}"' if is_expanded else quote(text)
