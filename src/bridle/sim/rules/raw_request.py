"""Helpers of all rules: reading a raw body without trusting it, making rules, finding tool loops.

Nothing here may fail on a malformed body: a rule that does not find its field finds nothing, and the rule
about the shape of that field reports it.

A tool loop runs from the last user prompt to the newest tool results. For the models behind two wires the
whole loop is one assistant turn, however many messages it has.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from .engine import ProviderRule, RawRequest, RuleFinding

JsonObject = Mapping[str, object]
RuleFinder = Callable[[RawRequest], RuleFinding | None]


def field(request: RawRequest, name: str) -> object:
    return request.body.get(name)


def as_mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def messages(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "messages"))]


def tools(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "tools"))]


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def make_rule(
    id: str,  # noqa: A002  the word of `Rule`
    find: RuleFinder,
    wording: str,
    *,
    code: str,
    evidence: str,
    models: str = "all",
    param: str = "",
) -> ProviderRule:
    """Make a rule of the usual kind: status 400, an invalid request."""
    return ProviderRule(
        id=id,
        find=find,
        wording=wording,
        evidence=evidence,
        models=models,
        type=code,
        param=param,
    )


def find_malformed_json(request: RawRequest) -> RuleFinding | None:
    return {"why": request.malformed} if request.malformed else None


def find_unknown_model(request: RawRequest) -> RuleFinding | None:
    return {"model": field(request, "model")} if request.abilities is None else None


def find_output_excess(request: RawRequest, wanted: object) -> RuleFinding | None:
    """Compare a requested number of output tokens with the model's limit, if that is known."""
    able = request.abilities
    if able is None or not able.output_limited or not isinstance(wanted, int) or wanted <= able.output_tokens:
        return None
    return {"wanted": wanted, "most": able.output_tokens, "model": field(request, "model")}


def find_loop_head(
    messages: Sequence[JsonObject], content: Callable[[JsonObject], Sequence[str]], result: str
) -> int | None:
    """Return the index of the first assistant message of the current tool loop; None outside a loop.

    `content` lists the block types of a message, `result` is the type of a tool result. A user message with
    anything else is a prompt and begins a new turn.
    """
    kinds = [content(message) for message in messages]
    if not messages or not kinds[-1] or not _is_result_message(messages[-1], kinds[-1], result):
        return None
    head: int | None = None
    for index, message in reversed([*enumerate(messages)]):
        role = message.get("role")
        if role == "assistant":
            head = index
        elif role == "user" and not _is_result_message(message, kinds[index], result):
            break
    return head


def _is_result_message(message: JsonObject, kinds: Sequence[str], result: str) -> bool:
    return message.get("role") == "user" and all(kind == result for kind in kinds)
