"""Results, resources and prompts of MCP servers as parts of a message."""

import binascii
from collections.abc import Sequence
from typing import Any

import mcp_types as types
import msgspec

from bridle.values.errors import MisuseError
from bridle.values.message import Media, Text
from bridle.values.text import escape_text, repair_surrogates

SENT_DOCUMENTS = ("application/pdf",)
"""Media types besides image and audio that are sent as media; other binary data is only named."""
EMPTY_RESULT = "(no content)"

Part = Text | Media


def make_call_parts(result: types.CallToolResult) -> tuple[Part, ...]:
    """The parts of a result; structured content is added unless a text repeats it."""
    parts = [make_content_part(item) for item in result.content]
    if result.structured_content is not None:
        structured = msgspec.json.encode(result.structured_content).decode()
        if not any(_repeats(part, result.structured_content) for part in parts):
            parts.append(Text(text=structured))
    shown = [part for part in parts if not isinstance(part, Text) or part.text]
    return tuple(shown) or (Text(text=EMPTY_RESULT),)


def make_error_text(result: types.CallToolResult) -> str:
    texts = [part.text for part in make_call_parts(result) if isinstance(part, Text)]
    return "\n".join(texts) or EMPTY_RESULT


def make_resource_parts(
    contents: Sequence[types.TextResourceContents | types.BlobResourceContents],
) -> tuple[Part, ...]:
    """The contents of a resource; each has its address above it if there are several."""
    parts = [_make_resource_part(item, with_header=len(contents) > 1) for item in contents]
    return tuple(parts) or (Text(text=EMPTY_RESULT),)


def make_prompt_parts(messages: Sequence[types.PromptMessage]) -> list[tuple[str, Part]]:
    """The role and the content of every message."""
    return [(message.role, make_content_part(message.content)) for message in messages]


def make_content_part(item: types.ContentBlock) -> Part:
    if isinstance(item, types.TextContent):
        return Text(text=repair_surrogates(item.text))
    if isinstance(item, types.ImageContent | types.AudioContent):
        return _make_media(item.data, item.mime_type, item.type)
    if isinstance(item, types.ResourceLink):
        about = "; ".join(filter(None, (item.mime_type, item.description)))
        return Text(
            text=f"[resource link] {item.title or item.name}: {item.uri}{f' ({about})' if about else ''}"
        )
    return _make_resource_part(item.resource, with_header=True)


def _make_resource_part(
    item: types.TextResourceContents | types.BlobResourceContents, *, with_header: bool
) -> Part:
    if isinstance(item, types.TextResourceContents):
        header = f"[resource {item.uri}]\n" if with_header else ""
        return Text(text=repair_surrogates(f"{header}{item.text}"))
    media_type = item.mime_type or ""
    if media_type.startswith(("image/", "audio/")) or media_type in SENT_DOCUMENTS:
        return _make_media(item.blob, media_type, str(item.uri))
    size = len(item.blob) * 3 // 4
    return Text(text=f"[resource {item.uri}: {size:,} bytes of {media_type or 'unknown type'}, not shown]")


def _make_media(data: str, media_type: str, what: str) -> Part:
    """The data as media; as a text that names the problem if no provider could accept it."""
    try:
        return Media.from_bytes(binascii.a2b_base64(data, strict_mode=True), media_type=media_type)
    except (binascii.Error, ValueError, MisuseError) as error:
        return Text(text=f"[{escape_text(what)} that cannot be shown: {escape_text(str(error))}]")


def _repeats(part: Part, structured: dict[str, Any]) -> bool:
    """True if a text has the same content, as JSON or as the only value: many servers wrap a result in one key."""
    if not isinstance(part, Text):
        return False
    values = (structured, *structured.values()) if len(structured) == 1 else (structured,)
    if part.text in values:
        return True
    try:
        return msgspec.json.decode(part.text) in values
    except (msgspec.MsgspecError, RecursionError):
        return False
