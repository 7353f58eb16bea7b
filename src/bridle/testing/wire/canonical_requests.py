"""Canonical form of a request, by wire family: equal for two bodies that the provider does not tell apart."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridle.ports.codec import HttpRequest

from . import (
    canonical_anthropic,
    canonical_bedrock,
    canonical_gemini,
    canonical_openai_chat,
    canonical_openai_responses,
)

BodyChange = Callable[[Any], Any]

CANONICAL_FORMS: Mapping[str, Callable[[HttpRequest], object]] = {
    "anthropic": canonical_anthropic.canonical_request,
    "bedrock_converse": canonical_bedrock.canonical_request,
    "gemini": canonical_gemini.canonical_request,
    "openai_chat": canonical_openai_chat.canonical_request,
    "openai_responses": canonical_openai_responses.canonical_request,
}
DELIBERATE_CHANGES: Mapping[str, Sequence[tuple[BodyChange, str]]] = {
    "openai_chat": canonical_openai_chat.DELIBERATE_CHANGES,
}
"""Intended changes of a family's codec: each a change of a request's JSON, with its reason."""
