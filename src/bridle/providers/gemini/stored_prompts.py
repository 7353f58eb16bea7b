"""Stores prompts by name (`cachedContents`): create, extend, drop, and decode the replies.

A stored prompt is the start of a prompt, tools and system instruction, for one model. A request that uses it
refers to its name and must not send that content again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from bridle.ports.codec import HttpRequest, StoredPromptInfo
from bridle.providers.wire.json import dumps, parse_integer
from bridle.values.errors import Failure, ProviderError

from .failures import decode_failure

CACHES_PATH = "/cachedContents"
JSON_HEADERS = (("content-type", "application/json"),)


def encode_store_prompt(model: str, front: Mapping[str, Any], seconds: float, label: str) -> HttpRequest:
    body = {"model": model, **front, "ttl": _format_duration(seconds), "displayName": label}
    return HttpRequest(path=CACHES_PATH, body=dumps(body), headers=JSON_HEADERS)


def encode_extend_prompt(name: str, seconds: float) -> HttpRequest:
    return HttpRequest(
        path=f"/{name}?updateMask=ttl",
        body=dumps({"ttl": _format_duration(seconds)}),
        headers=JSON_HEADERS,
        method="PATCH",
    )


def encode_drop_prompt(name: str) -> HttpRequest:
    return HttpRequest(path=f"/{name}", body=b"", method="DELETE")


def decode_stored_prompt(status: int, headers: Mapping[str, str], body: bytes) -> StoredPromptInfo:
    if status >= 300:
        raise ProviderError(decode_failure(status, headers, body))
    try:
        reply = msgspec.json.decode(body or b"{}")
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise ProviderError(
            Failure(kind="garbled", message="the reply about a stored prompt is not a JSON object")
        )
    usage, name = reply.get("usageMetadata"), reply.get("name")
    tokens = parse_integer(usage.get("totalTokenCount")) if isinstance(usage, dict) else None
    return StoredPromptInfo(name=name if isinstance(name, str) else "", tokens=max(tokens or 0, 0))


def _format_duration(seconds: float) -> str:
    return f"{max(1, round(seconds))}s"
