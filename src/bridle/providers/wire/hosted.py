"""Hosted tools declared by concept: a table of each wire family maps a concept to the JSON of its wire.

A row (`HostedForm`) is data: the declaration with its version, and the member that each option becomes. Which models
have a concept, and which restricting options their provider enforces, is an ability (endpoints.toml); what a use
costs is in models.toml. An option without a member is not sent, which `list_hosted_losses` reports.

Items that a provider made with its tools go back to it unchanged. `describe_hosted_item` is their text for others.
"""

from collections.abc import Iterator
from typing import Any

from bridle.providers.wire.dialect import match_model_id
from bridle.providers.wire.extras import describe_hidden_tool
from bridle.providers.wire.json import loads, set_at_path
from bridle.values.base import Value
from bridle.values.errors import BadTool
from bridle.values.model import Model
from bridle.values.request import ToolSpec

Block = dict[str, Any]


class HostedForm(Value, kw_only=True):
    """The declaration of one concept on a wire."""

    concept: str
    json: str
    """Members that every declaration has, as JSON text."""
    options: tuple[tuple[str, str], ...] = ()
    """Options with the path of their member, such as `filters.allowed_domains`; empty if no member is needed."""
    models: str = ""
    """Pattern of the model ids that take this form; empty for all. The first row that fits is used."""
    beta: str = ""
    """Feature that a header must name."""


HostedForms = tuple[HostedForm, ...]


def find_hosted_form(forms: HostedForms, concept: str, model: Model) -> HostedForm | None:
    return next(
        (
            form
            for form in forms
            if form.concept == concept and (not form.models or match_model_id(form.models, model.id))
        ),
        None,
    )


def read_hosted_options(spec: ToolSpec) -> Block:
    """The options of a hosted tool; raises `BadTool` if some of them are hidden, as in a log."""
    if spec.native_digest:
        raise BadTool(describe_hidden_tool(spec))
    return {name: value for name, value in loads(spec.native or "{}").items() if name != "type"}


def encode_hosted_tool(spec: ToolSpec, forms: HostedForms, model: Model) -> Block:
    """Encode the declaration; raises `BadTool` if this wire has none."""
    assert spec.hosted is not None
    form = find_hosted_form(forms, spec.hosted.concept, model)
    if form is None:
        raise BadTool(f"{model.name} has no hosted {spec.hosted.concept}; use {spec.hosted.alternative}")
    tool: Block = loads(form.json)
    # A limit is always sent, because the worst case of a reply is computed from it.
    options = {"max_uses": spec.hosted.max_uses, **read_hosted_options(spec)}
    for name, path in form.options:
        if name in options:
            set_at_path(tool, path, options[name])
    return tool


def list_hosted_losses(spec: ToolSpec, forms: HostedForms, model: Model) -> tuple[str, ...]:
    """Options of a hosted tool that this wire cannot express, one sentence each."""
    form = spec.hosted and find_hosted_form(forms, spec.hosted.concept, model)
    known = dict(form.options) if form else {}
    return tuple(
        f"the hosted tool {spec.name!r} is declared without {name}: {model.name} has no such option"
        for name in loads(spec.native or "{}")
        if form and name != "type" and name not in known
    )


# not from outside: our own text, shown to a person or a model
ITEM_CHARACTERS_MAX = 2_000
_READABLE_MEMBERS = frozenset((
    "query", "queries", "webSearchQueries", "code", "command", "title", "url", "uri", "text", "stdout", "stderr",
    "output", "logs", "error_code", "arguments", "revised_prompt", "filename", "name",
))  # fmt: skip


def describe_hosted_item(kind: str, item: object) -> str:
    """The readable content of an item as text, shortened, for models of other providers."""
    text = "; ".join(dict.fromkeys(_list_texts(item)))
    if len(text) > ITEM_CHARACTERS_MAX:
        text = text[:ITEM_CHARACTERS_MAX] + " […]"
    return f"[{kind}: {text}]" if text else ""


def _list_texts(value: object, *, is_readable: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if is_readable and value.strip():
            yield value.strip()
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _list_texts(member, is_readable=name in _READABLE_MEMBERS)
    elif isinstance(value, list):
        for each in value:
            yield from _list_texts(each, is_readable=is_readable)
