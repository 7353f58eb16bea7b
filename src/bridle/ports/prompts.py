"""What a codec may be besides: one whose provider keeps prompts by name, for as long as is paid for."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ..values.request import Request
from ..values.value import Value
from .codec import HttpRequest


class Named(Value):
    """What the provider says it keeps."""

    name: str
    tokens: int


@runtime_checkable
class PromptKeeping(Protocol):
    def keep_prompt(self, request: Request, seconds: float, label: str) -> HttpRequest:
        """Keep the tools and the system prompt of this request, and nothing of its messages."""
        ...

    def keep_longer(self, name: str, seconds: float) -> HttpRequest:
        """Keep it for so long from now on."""
        ...

    def drop_prompt(self, name: str) -> HttpRequest: ...

    def named(self, status: int, headers: Mapping[str, str], body: bytes) -> Named:
        """What came back, of any of them; raises `ProviderError` when it was refused or is no answer."""
        ...
