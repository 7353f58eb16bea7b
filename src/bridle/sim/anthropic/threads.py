"""Threads of the Messages API: the provider stores the conversation, and a continuation sends only new messages.

A request with `thread: {"type": "create"}` is stored under the id of its response. One with `continue` names
that id: it takes `system` and `tools` from the thread, must not repeat them, and must use the same model.
Each response can be continued once, and a thread expires five minutes after its last request. A continuation
is expanded before it is decoded, so rules and responder see the whole conversation.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.sim.endpoints import CallerContext, Json
from bridle.sim.rules.engine import RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping
from bridle.sim.stored_objects import StoredObjects, StoredThread
from bridle.values.errors import Failure

from .rules_fields import refuse

CREATE, CONTINUE = "create", "continue"
THREAD_TYPES = (CREATE, CONTINUE)
UNSUPPORTED = ("context_management", "fallbacks")


def _find_unknown_type(body: JsonObject) -> RuleFinding | None:
    thread = body.get("thread")
    type_ = as_mapping(thread).get("type")
    return None if thread is None or type_ in THREAD_TYPES else {"kind": type_}


def _lacks_previous_message(body: JsonObject) -> bool:
    thread = as_mapping(body.get("thread"))
    return thread.get("type") == CONTINUE and not isinstance(thread.get("previous_message_id"), str)


def _find_unsupported_field(body: JsonObject) -> RuleFinding | None:
    return next(({"name": name} for name in UNSUPPORTED if body.get("thread") and body.get(name)), None)


THREAD_RULES = (
    refuse(
        "thread-type",
        "",
        _find_unknown_type,
        "thread: Input tag '{kind}' found using 'type' does not match any of the expected tags:"
        " 'create', 'continue'",
        evidence="F",
    ),
    refuse(
        "thread-previous",
        "",
        _lacks_previous_message,
        "thread.continue.previous_message_id: Field required",
        evidence="F",
    ),
    refuse(
        "thread-alone",
        "",
        _find_unsupported_field,
        "thread: cannot be combined with `{name}`.",
        evidence="S",
        code="thread_unsupported_request",
    ),
)


BETA = "message-threads-"
HELD_SECONDS = 300.0
CREATE_ONLY = ("system", "tools")
DELTA_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""Deltas that extend a string, with the member that holds the fragment."""


def expand_thread(
    stored: StoredObjects, body: Mapping[str, object], caller: CallerContext
) -> Mapping[str, object] | Failure:
    """Return the request with the conversation it continues; the same object if it continues none."""
    thread = as_mapping(body.get("thread"))
    previous = thread.get("previous_message_id")
    betas = f"{caller.headers.get('anthropic-beta', '')} {body.get('anthropic_beta')}"
    if thread.get("type") != CONTINUE or not isinstance(previous, str) or BETA not in betas:
        return body
    thread_held = stored.threads.get(previous)
    if thread_held is None or caller.now > thread_held.expires_at:
        return _thread_not_found(previous)
    if not thread_held.continuations:
        return _thread_refusal(
            f"The response {previous} has already been continued. Continue from the most recent response id.",
            "thread_already_continued",
        )
    repeated = [name for name in CREATE_ONLY if name in body]
    if repeated:
        return _thread_refusal(f"{repeated[0]}: not accepted with thread.type `continue`.")
    if body.get("model") != thread_held.model:
        return _thread_refusal(
            "model: differs from the value stored with the thread.", "thread_fingerprint_mismatch"
        )
    conversation = [*thread_held.messages, *as_list(body.get("messages"))]
    return {**body, **thread_held.prompt_head, "messages": conversation}


def store_thread(stored: StoredObjects, body: Mapping[str, object], reply: HttpReply, now: float) -> None:
    """Store the conversation that ends with this reply, if its request asks for that."""
    thread = as_mapping(body.get("thread"))
    message = _read_message(reply) if thread.get("type") in (CREATE, CONTINUE) else None
    if message is None:
        return
    previous = stored.threads.get(str(thread.get("previous_message_id", "")))
    head: Json = {name: body[name] for name in CREATE_ONLY if name in body}
    before: tuple[Json, ...] = ()
    if thread["type"] == CONTINUE and previous is not None:
        stored.store_thread(replace(previous, continuations=previous.continuations - 1))
        head, before = previous.prompt_head, previous.messages
    new_messages = tuple(
        _without_cache_control(item) for item in map(as_mapping, as_list(body.get("messages")))
    )
    content = message.get("content")
    answer: tuple[Json, ...] = ({"role": "assistant", "content": content},) if content else ()
    name = str(message.get("id"))
    again = stored.threads.get(name)
    stored.store_thread(
        StoredThread(
            id=name,
            model=str(body.get("model")),
            prompt_head=head,
            messages=(*before, *new_messages, *answer),
            expires_at=now + HELD_SECONDS,
            # The same conversation stored twice has one id here, and may be continued as often.
            continuations=(again.continuations if again else 0) + 1,
        )
    )


def _without_cache_control(message: JsonObject) -> Json:
    """Remove cache marks from a message: they belonged to the request that sent it first."""
    content = message.get("content")
    if isinstance(content, str):
        return dict(message)
    blocks = [
        {name: value for name, value in as_mapping(block).items() if name != "cache_control"}
        for block in as_list(content)
    ]
    return {**message, "content": blocks}


def _read_message(reply: HttpReply) -> JsonObject | None:
    """Read the message of an answer, whole or streamed; None if it did not end."""
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
    started = next(as_mapping(event["message"]) for event in events if event.get("type") == "message_start")
    return {**started, "content": _join_blocks(events)}


def _join_blocks(events: Sequence[JsonObject]) -> list[Json]:
    blocks: list[Json] = []
    arguments: dict[int, str] = {}
    for event in events:
        delta = as_mapping(event.get("delta"))
        kind = str(delta.get("type"))
        if event.get("type") == "content_block_start":
            blocks.append(dict(as_mapping(event.get("content_block"))))
        elif event.get("type") != "content_block_delta":
            continue
        elif kind == "input_json_delta":
            at = len(blocks) - 1
            arguments[at] = arguments.get(at, "") + str(delta["partial_json"])
        elif kind in DELTA_FIELDS:
            name = DELTA_FIELDS[kind]
            blocks[-1][name] = f"{blocks[-1].get(name) or ''}{delta[name]}"
        elif kind == "citations_delta":
            blocks[-1]["citations"] = [*as_list(blocks[-1].get("citations")), delta["citation"]]
    for at, text in arguments.items():
        blocks[at]["input"] = _parse_arguments(text)
    return blocks


def _parse_arguments(text: str) -> object:
    """Parse the arguments of a call; empty if they were cut off."""
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}


def _thread_not_found(previous: str) -> Failure:
    return Failure(
        kind="not_found",
        message=f"No usable thread state was found for previous_message_id {previous}.",
        status=404,
        code="thread_not_found",
    )


def _thread_refusal(message: str, code: str = "") -> Failure:
    return Failure(kind="invalid", message=message, status=400, code=code)
