"""Edits of texts outside the conversation: of the system prompt, the tools, the output type, stop sequences, a summary.

A hook that redacts such a text replaces it by content, not by position: the same text is replaced wherever it
stands, and a text that changed since is another one, which hooks decide about again.  Extras and definitions of
hosted tools are not among them: the log holds no strings of them (run/private_extras.py).
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec.structs import replace

from bridle.values.hooks import HeadEdit
from bridle.values.message import Message, Part, Text
from bridle.values.request import OutputSpec, Sampling, ToolSpec

DIGEST_BYTES = 16


def digest_text(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


class HeadEditor:
    """Applies the edits of a session; made only if there are some."""

    def __init__(self, edits: Iterable[HeadEdit]) -> None:
        self._new: Mapping[str, str] = {edit.digest: edit.text for edit in edits}

    def edit(self, text: str) -> str:
        """The text after all edits; a later hook may have edited what an earlier one wrote."""
        for _ in self._new:
            new = self._new.get(digest_text(text))
            if new is None or new == text:
                break
            text = new
        return text

    def edit_texts(self, texts: Iterable[Text]) -> tuple[Text, ...]:
        return tuple(Text(text=self.edit(each.text)) for each in texts)

    def edit_tools(self, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        return tuple(
            replace(
                spec,
                description=self.edit(spec.description),
                parameters=self.edit(spec.parameters),
            )
            for spec in specs
        )

    def edit_output(self, output: OutputSpec | None) -> OutputSpec | None:
        if output is None:
            return None
        return replace(
            output, description=self.edit(output.description), parameters=self.edit(output.parameters)
        )

    def edit_sampling(self, sampling: Sampling) -> Sampling:
        return replace(sampling, stop_sequences=tuple(map(self.edit, sampling.stop_sequences)))

    def edit_summary(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages, of which the first may be a summary; no other message is edited here."""
        if not messages or messages[0].provenance != "summary":
            return messages
        parts: list[Part] = [
            replace(part, text=self.edit(part.text)) if isinstance(part, Text) else part
            for part in messages[0].parts
        ]
        return (replace(messages[0], parts=tuple(parts)), *messages[1:])
