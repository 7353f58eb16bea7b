"""What servers of Chat Completions do not tell apart: requests brought to one form, to be compared.

Two requests mean the same when these forms are equal.  Each line of this file is a claim about the
protocol, taken from its documentation:

  - a string as content is one text part, no content is an empty one, and blank texts say nothing
  - a picture's address may stand in an object or by itself
  - null, `stream: false`, `strict: false`, an empty list and an empty member of a message are nothing
  - a call without arguments has an empty object of them; the number of a call is its place in the list
  - an empty description or name is none
  - the choice `auto` and parallel calls are the default; a choice without tools is none
  - the limit of an answer has two names
  - one stop sequence may stand outside a list
  - a path that names the model says it as well as the body does

What the codec changes on purpose stands below, so that a check can tell it from a loss.  All of it is
used by checks, never on the way to a server.
"""

from typing import Any

from ..ports.codec import HttpRequest
from ._json import loads
from ._openai_chat_calls import legal_arguments
from ._openai_chat_content import Block, said
from ._openai_chat_read import model_of
from ._openai_chat_write import NO_OUTPUT, UNANSWERED

_EMPTY: tuple[object, ...] = (None, [], {}, "")
_NO_ARGUMENTS = ("", "null", None)


def meaning(request: HttpRequest) -> object:
    body = said(loads(request.body))
    body["model"] = body.get("model") or model_of(request.path) or None
    body["stream"] = body.get("stream") is True or None
    body["messages"] = [told for message in body["messages"] if (told := _message(said(message)))]
    body["tools"] = [_tool(said(tool)) for tool in body.get("tools", [])]
    if not body["tools"] or body.get("tool_choice") == "auto":
        body.pop("tool_choice", None)
    if not body["tools"] or body.get("parallel_tool_calls") is True:
        body.pop("parallel_tool_calls", None)
    if "max_completion_tokens" not in body and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    shape = body.get("response_format")
    if isinstance(shape, dict) and isinstance(shape.get("json_schema"), dict):
        inner = _named(shape["json_schema"])
        if inner.get("strict") is False:
            del inner["strict"]
        body["response_format"] = {**shape, "json_schema": inner}
    return {name: value for name, value in body.items() if value is not None and value != []}


def _message(message: Block) -> Block | None:
    """None for a message that says nothing."""
    plain = {name: value for name, value in message.items() if value not in _EMPTY and name != "content"}
    if content := _content(message.get("content")):
        plain["content"] = content
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = [_call(call) for call in plain["tool_calls"]]
    return plain if plain.keys() - {"role"} else None


def _content(content: Any) -> list[Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [block for each in blocks if (block := _block(each)) is not None]


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    plain = said(block)
    if plain.get("type") == "text" and isinstance(plain.get("text"), str) and not plain["text"].strip():
        return None
    if plain.get("type") == "image_url" and isinstance(plain.get("image_url"), str):
        plain["image_url"] = {"url": plain["image_url"]}
    return plain


def _call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    plain = {"type": "function", **said(call)}
    plain.pop("index", None)
    function = plain.get("function")
    if isinstance(function, dict) and function.get("arguments") in _NO_ARGUMENTS:
        plain["function"] = {**function, "arguments": "{}"}
    return plain


def _tool(tool: Block) -> Block:
    function = tool.get("function")
    return {**tool, "function": _named(function)} if isinstance(function, dict) else tool


def _named(members: Block) -> Block:
    return {
        name: value for name, value in said(members).items() if value or name not in ("name", "description")
    }


def with_every_call_answered(body: Any) -> Any:
    """A request whose results all name their calls, and in which no call waits for one."""
    messages: list[Block] = []
    waiting: list[str] = []
    for message in body["messages"]:
        if message.get("role") == "tool":
            named = message.get("tool_call_id") or (waiting[0] if waiting else "")
            if named in waiting:
                waiting.remove(named)
                messages.append({**message, "tool_call_id": named})
            continue
        messages += _answers(waiting)
        messages.append(message)
        waiting = [call.get("id") or "" for call in message.get("tool_calls") or ()]
    return {**body, "messages": [*messages, *_answers(waiting)]}


def _answers(waiting: list[str]) -> list[Block]:
    return [{"role": "tool", "tool_call_id": call_id, "content": UNANSWERED} for call_id in waiting]


def with_arguments_in_objects(body: Any) -> Any:
    """A request in which the arguments of every call are an object, or say that they are none."""
    messages = [
        {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def _with_object(call: Block) -> Block:
    function = call.get("function")
    if not isinstance(function, dict) or function.get("arguments") in _NO_ARGUMENTS:
        return call
    return {**call, "function": {**function, "arguments": legal_arguments(function["arguments"])}}


def with_words_in_every_result(body: Any) -> Any:
    """A request in which a result without a word says that it has none."""
    messages = [
        {**message, "content": NO_OUTPUT}
        if message.get("role") == "tool" and not _content(message.get("content"))
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


CHANGES = (
    (
        with_words_in_every_result,
        "a result without a word says so: some servers refuse an empty one",
    ),
    (
        with_every_call_answered,
        "each call has one result, which names it: anything else is refused by most servers",
    ),
    (
        with_arguments_in_objects,
        "arguments are an object: servers that render them fail for ever on anything else",
    ),
)
