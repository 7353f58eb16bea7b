"""Differences between servers of Chat Completions, as data.

Dozens of servers implement this wire, each a little differently. Decoding hardly depends on that: one
tolerant reader accepts them all. Encoding does, because servers refuse what others require. Each difference
is a field here whose default follows the documented protocol; code reads the field and never compares names.
"""

from typing import Literal

from bridle.providers.wire.hosted import HostedForms
from bridle.values.base import Value
from bridle.values.request import Extra

FAMILY = "openai_chat"
TOOL_DIALECT, OUTPUT_DIALECT = "openai_loose", "openai_output"
"""The JSON Schema dialects of this wire, for tools and for answers."""


class ChatDialect(Value, kw_only=True):
    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """Name of the field that limits the answer."""
    system_role: Literal["system", "developer"] = "system"
    content: Literal["any", "string"] = "any"
    """`string`: a text-only server, which refuses lists of parts."""
    empty_content: Literal["null", "empty", "absent"] = "null"
    """Content of a message that has calls and no text."""
    alternates: bool = False
    """True if user and model have to alternate, as the templates of some servers require."""
    unsent: tuple[str, ...] = ("annotations", "executed_tools")
    """Members of the server's own messages that it does not accept back."""

    reasoning_field: str = "reasoning_content"
    """Field for reasoning from other servers, if this server requires some."""
    sealed_by: str = ""
    """Pattern of model ids: reasoning is sent back to models with the same match (wire/dialect.py)."""
    must_echo_models: str = ""
    """Pattern of model ids: these models require reasoning beside every call, whatever the endpoint's policy.
    """
    think_tags: bool = False
    """True if reasoning precedes the answer, between <think> and </think>."""
    effort_at: str = "reasoning_effort"
    """Location of a setting: a name, nested ones with dots, such as `reasoning.effort`. Empty: not accepted.
    """
    mode_at: str = ""
    modes: tuple[tuple[str, str], ...] = ()
    """Values of a mode on this server, as JSON; an unlisted mode is sent as a string."""
    budget_at: str = ""

    tool_required: str = "required"
    """The value that makes the model call some tool."""
    toolless_models: str = ""
    """Pattern of model ids: on this wire these models refuse every request with tools."""
    tools_at: str = ""
    """The endpoint at which they accept tools, as a user would type it."""
    parallel_switch: bool = True
    """True if `parallel_tool_calls` is supported."""
    id_length: int | None = None
    """Exact number of letters and digits of call ids; None if most ids are accepted."""
    result_images: Literal["user", "result", "omit"] = "user"
    """Position of images of a result: in a message after all results, in the result, or omitted."""

    documents: Literal["file", "document_url", "omit"] = "file"
    audio: bool = True
    video: bool = False
    top_k: bool = False
    strict: bool = True
    """True if a schema may be marked as strict."""
    cache_marks: bool = False
    """True if `cache_control` on a part is supported."""
    breakpoints: bool = False
    """True if OpenAI's breakpoints are used instead, and the server marks the end of a conversation itself.
    """
    stream_usage: bool = True
    """True if usage at the end of a stream may be requested; some servers refuse the option."""
    always: tuple[Extra, ...] = ()
    """Fields sent with every request."""
    hosted: HostedForms = ()
    """Declarations of the server's own tools."""
