"""Reads replies of any family with the reference decoders, which share no code with the codecs."""

from collections.abc import Callable, Mapping, Sequence

from .reference_anthropic import read_anthropic
from .reference_bedrock import read_bedrock
from .reference_decoder import NamedDocument, ReferenceReply, split_documents
from .reference_gemini import read_gemini
from .reference_openai_chat import read_openai_chat
from .reference_openai_responses import read_openai_responses

REFERENCE_DECODERS: Mapping[str, Callable[[Sequence[NamedDocument]], ReferenceReply | None]] = {
    "anthropic": read_anthropic,
    "bedrock_converse": read_bedrock,
    "gemini": read_gemini,
    "openai_chat": read_openai_chat,
    "openai_responses": read_openai_responses,
}


def read_reply(family: str, body: bytes) -> ReferenceReply | None:
    reader, documents = REFERENCE_DECODERS.get(family), split_documents(body)
    return reader(documents) if reader and documents else None
