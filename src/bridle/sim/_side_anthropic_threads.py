"""Threads of the Messages API: the conversation is held, and a continuation sends only what is new.

A request with `thread: {"type": "create"}` is held under the id of its response.  One with `continue` names
that id: it takes `system` and `tools` from the thread and may not repeat them, and the model stays the same.
Each response is continued once, and a thread is forgotten five minutes after its last request.  A
continuation is filled in before anybody reads it, so rules and responder see the whole conversation.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..ports.codec import HttpReply
from ..values.errors import Failure
from ._rules_reading import Block, listed, mapping
from .keeping import Keeping, KeptThread
from .side import Caller, Json

BETA = "message-threads-"
HELD_SECONDS = 300.0
CREATE, CONTINUE = "create", "continue"
CREATE_ONLY = ("system", "tools")
PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""Deltas that add to a string, and the member of the delta that holds the piece."""


def fill_in_thread(
    keeping: Keeping, body: Mapping[str, object], caller: Caller
) -> Mapping[str, object] | Failure:
    """The request with the conversation it continues; the very same when it continues none."""
    thread = mapping(body.get("thread"))
    previous = thread.get("previous_message_id")
    asked_for = f"{caller.headers.get('anthropic-beta', '')} {body.get('anthropic_beta')}"
    if thread.get("type") != CONTINUE or not isinstance(previous, str) or BETA not in asked_for:
        return body
    held = keeping.threads.get(previous)
    if held is None or caller.now > held.until:
        return _not_found(previous)
    if not held.continuations:
        return _refused(
            f"The response {previous} has already been continued. Continue from the most recent response id.",
            "thread_already_continued",
        )
    repeated = [name for name in CREATE_ONLY if name in body]
    if repeated:
        return _refused(f"{repeated[0]}: not accepted with thread.type `continue`.")
    if body.get("model") != held.model:
        return _refused(
            "model: differs from the value stored with the thread.", "thread_fingerprint_mismatch"
        )
    said = [*held.messages, *listed(body.get("messages"))]
    return {**body, **held.head, "messages": said}


def keep_thread(keeping: Keeping, body: Mapping[str, object], reply: HttpReply, now: float) -> None:
    """Hold the conversation that ends with this reply, if its request asked for that."""
    thread = mapping(body.get("thread"))
    message = _message_in(reply) if thread.get("type") in (CREATE, CONTINUE) else None
    if message is None:
        return
    previous = keeping.threads.get(str(thread.get("previous_message_id", "")))
    head: Json = {name: body[name] for name in CREATE_ONLY if name in body}
    before: tuple[Json, ...] = ()
    if thread["type"] == CONTINUE and previous is not None:
        keeping.hold_thread(replace(previous, continuations=previous.continuations - 1))
        head, before = previous.head, previous.messages
    given = tuple(_unmarked(item) for item in map(mapping, listed(body.get("messages"))))
    content = message.get("content")
    answer: tuple[Json, ...] = ({"role": "assistant", "content": content},) if content else ()
    name = str(message.get("id"))
    again = keeping.threads.get(name)
    keeping.hold_thread(
        KeptThread(
            id=name,
            model=str(body.get("model")),
            head=head,
            messages=(*before, *given, *answer),
            until=now + HELD_SECONDS,
            # The same conversation held twice has one id here, and may be continued as often.
            continuations=(again.continuations if again else 0) + 1,
        )
    )


def _unmarked(message: Block) -> Json:
    """A message without its cache marks: they were meant for the request that sent it first."""
    content = message.get("content")
    if isinstance(content, str):
        return dict(message)
    blocks = [
        {name: value for name, value in mapping(block).items() if name != "cache_control"}
        for block in listed(content)
    ]
    return {**message, "content": blocks}


def _message_in(reply: HttpReply) -> Block | None:
    """The message of an answer, whole or put together from its stream; None when it did not end."""
    data = b"".join(reply.frames)
    if not data.startswith(b"event:"):
        whole = msgspec.json.decode(data, type=dict[str, object])
        return whole if whole.get("type") == "message" else None
    events = [
        msgspec.json.decode(line.removeprefix(b"data: "), type=dict[str, object])
        for line in data.split(b"\n")
        if line.startswith(b"data: ")
    ]
    if not events or events[-1].get("type") != "message_stop":
        return None
    started = next(mapping(event["message"]) for event in events if event.get("type") == "message_start")
    return {**started, "content": _blocks_in(events)}


def _blocks_in(events: Sequence[Block]) -> list[Json]:
    blocks: list[Json] = []
    arguments: dict[int, str] = {}
    for event in events:
        delta = mapping(event.get("delta"))
        kind = str(delta.get("type"))
        if event.get("type") == "content_block_start":
            blocks.append(dict(mapping(event.get("content_block"))))
        elif event.get("type") != "content_block_delta":
            continue
        elif kind == "input_json_delta":
            at = len(blocks) - 1
            arguments[at] = arguments.get(at, "") + str(delta["partial_json"])
        elif kind in PIECES:
            name = PIECES[kind]
            blocks[-1][name] = f"{blocks[-1].get(name) or ''}{delta[name]}"
        elif kind == "citations_delta":
            blocks[-1]["citations"] = [*listed(blocks[-1].get("citations")), delta["citation"]]
    for at, text in arguments.items():
        blocks[at]["input"] = _arguments(text)
    return blocks


def _arguments(text: str) -> object:
    """What a call was given; nothing when it was cut off."""
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}


def _not_found(previous: str) -> Failure:
    return Failure(
        kind="not_found",
        message=f"No usable thread state was found for previous_message_id {previous}.",
        status=404,
        code="thread_not_found",
    )


def _refused(message: str, code: str = "") -> Failure:
    return Failure(kind="invalid", message=message, status=400, code=code)
