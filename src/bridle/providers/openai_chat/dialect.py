"""How one server's Chat Completions differs from the next one's, as data.

Dozens of servers speak this wire, each a little differently.  Decoding needs hardly any of that: one
tolerant reader takes them all.  Writing does, because what one server demands another refuses.  Each
difference is a field here with the value that suits the protocol as it is documented; code asks for
the field and never for a name.
"""

from typing import Literal

from bridle.values.base import Value
from bridle.values.request import Extra

FAMILY = "openai_chat"
TOOL_DIALECT, OUTPUT_DIALECT = "openai_loose", "openai_output"
"""The dialects of JSON Schema that are taken here, for tools and for answers."""


class ChatDialect(Value):
    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """What the limit of an answer is called."""
    system_role: Literal["system", "developer"] = "system"
    content: Literal["any", "string"] = "any"
    """`string`: a server for text only, which refuses lists of parts."""
    empty_content: Literal["null", "empty", "absent"] = "null"
    """What stands for the words of a message that has calls and no words."""
    alternates: bool = False
    """Whether user and model have to speak in turns, as the templates of some servers demand."""
    unsent: tuple[str, ...] = ("annotations", "executed_tools")
    """Members of the server's own messages that it does not take back."""

    reasoning_field: str = "reasoning_content"
    """Where reasoning goes that did not come from this server, should it insist on having some."""
    sealed_by: str = ""
    """A pattern of ids: reasoning goes back to models in whose id it finds the same, see `_home`."""
    must_echo_models: str = ""
    """A pattern of ids: these models insist on reasoning beside every call, whatever others here do."""
    think_tags: bool = False
    """Whether reasoning stands in front of the answer, between <think> and </think>."""
    effort_at: str = "reasoning_effort"
    """Places of settings are names, nested ones with dots: `reasoning.effort`.  Empty: not taken."""
    mode_at: str = ""
    modes: tuple[tuple[str, str], ...] = ()
    """What a mode is called there, as JSON; one that is not listed goes out as a string."""
    budget_at: str = ""

    tool_required: str = "required"
    """The word that makes the model call some tool."""
    toolless_models: str = ""
    """A pattern of ids: on this wire these models refuse every request with tools."""
    tools_at: str = ""
    """The endpoint at which they take them, as a person would type it."""
    parallel_switch: bool = True
    """Whether `parallel_tool_calls` is understood."""
    id_length: int | None = None
    """Ids of calls are exactly this many letters and digits; None when most are fine."""
    result_images: Literal["user", "result", "omit"] = "user"
    """Where pictures in a result go: into a message after all results, into the result, or nowhere."""

    documents: Literal["file", "document_url", "omit"] = "file"
    audio: bool = True
    video: bool = False
    top_k: bool = False
    strict: bool = True
    """Whether a shape may be marked as strict."""
    cache_marks: bool = False
    """Whether `cache_control` on a part is understood."""
    breakpoints: bool = False
    """Whether marks are breakpoints instead, and the end of a conversation is the server's to mark."""
    stream_usage: bool = True
    """Whether counts at the end of a stream may be asked for; some servers refuse the question."""
    always: tuple[Extra, ...] = ()
    """Fields sent with every request."""
