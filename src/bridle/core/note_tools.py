"""The model's tools for notes, and the reasons to refuse a note."""

from bridle.values.memory import NOTE_CHARACTERS_MAX
from bridle.values.request import ToolSpec

from .state import MemoryState

NOTES_NAMED_MAX = 10

REMEMBER_TOOL = ToolSpec(
    name="remember",
    description=(
        "Keep a note for later: a fact or a preference that will still matter, in one or two sentences."
        " Notes are shown to you at the start of a conversation. Keep no secrets, and nothing that only"
        " this moment needs."
    ),
    parameters=(
        '{"type":"object","properties":{'
        f'"note":{{"type":"string","minLength":1,"maxLength":{NOTE_CHARACTERS_MAX},'
        '"description":"What to remember, understandable on its own."},'
        '"scope":{"type":"string","enum":["always","conversation"],"default":"always",'
        '"description":"For every later conversation, or for this one only."}'
        '},"required":["note"],"additionalProperties":false}'
    ),
    effect="write",
    on_unknown="retry",
    claims_resource=True,
    always_visible=True,
)
FORGET_TOOL = ToolSpec(
    name="forget",
    description="Remove a note that is wrong or of no more use.",
    parameters=(
        '{"type":"object","properties":{"id":{"type":"string",'
        '"description":"The id in front of the note, such as t3."}},'
        '"required":["id"],"additionalProperties":false}'
    ),
    effect="write",
    on_unknown="retry",
    claims_resource=True,
    always_visible=True,
)


def explain_no_room(book: MemoryState, text: str, limit: int) -> str:
    """Reason why a note cannot be accepted; empty if it can."""
    if not text:
        return "a note needs words"
    if len(text) > NOTE_CHARACTERS_MAX:
        return f"a note has {NOTE_CHARACTERS_MAX:,} characters at most, this one {len(text):,}; shorten it"
    used = sum(len(note.text) for note in book.notes)
    if used + len(text) <= limit:
        return ""
    largest = sorted(book.notes, key=lambda note: len(note.text), reverse=True)[:NOTES_NAMED_MAX]
    named = ", ".join(f"{note.id} ({len(note.text):,})" for note in largest)
    return (
        f"there is room for {limit:,} characters of notes, {used:,} are taken and this one has"
        f" {len(text):,}; remove some first, the largest are: {named or 'none'}"
    )


def explain_unknown_note(book: MemoryState, note: str) -> str:
    known = ", ".join(each.id for each in book.notes[-NOTES_NAMED_MAX:]) or "none"
    return f"there is no note {note!r} here; there are: {known}"
