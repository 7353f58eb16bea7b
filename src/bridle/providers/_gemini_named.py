"""Prompts kept by name (`cachedContents`): made, kept for longer, dropped, and what is said of them.

What is kept is the front of a prompt, tools and system instruction, for one model.  A request that
leans on it names it and must not send any of that again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..ports.codec import HttpRequest
from ..ports.prompts import Named
from ..values.errors import Failure, ProviderError
from ._gemini_failures import failure_of
from ._json import dumps, whole

PATH = "/cachedContents"
HEADERS = (("content-type", "application/json"),)


def creation(model: str, front: Mapping[str, Any], seconds: float, label: str) -> HttpRequest:
    body = {"model": model, **front, "ttl": _duration(seconds), "displayName": label}
    return HttpRequest(path=PATH, body=dumps(body), headers=HEADERS)


def extension(name: str, seconds: float) -> HttpRequest:
    return HttpRequest(
        path=f"/{name}?updateMask=ttl",
        body=dumps({"ttl": _duration(seconds)}),
        headers=HEADERS,
        method="PATCH",
    )


def removal(name: str) -> HttpRequest:
    return HttpRequest(path=f"/{name}", body=b"", method="DELETE")


def named(status: int, headers: Mapping[str, str], body: bytes) -> Named:
    if status >= 300:
        raise ProviderError(failure_of(status, headers, body))
    try:
        told = msgspec.json.decode(body or b"{}")
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise ProviderError(Failure(kind="garbled", message="the provider kept something it cannot describe"))
    usage, name = told.get("usageMetadata"), told.get("name")
    tokens = whole(usage.get("totalTokenCount")) if isinstance(usage, dict) else None
    return Named(name=name if isinstance(name, str) else "", tokens=max(tokens or 0, 0))


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))}s"
