"""What of a vendor's reply goes back otherwise than it came, and why (`REASONS`)."""

from tests.wire.vendors.vendor_replies import ROOTS
from tests.wire.vendors.vendor_shapes import Shapes

STREAMS = dict.fromkeys(ROOTS, "text/event-stream") | {
    "bedrock_converse": "application/vnd.amazon.eventstream"
}
THOUGHTS = ("thinking", "redacted_thinking", "reasoning")


def members_taken(kind):
    """The members that the input types have for an item of a kind."""
    shapes = Shapes()
    taken = set()
    for name, said in shapes.shapes.items():
        members = {**said.get("req", {}), **said.get("opt", {})}
        if name.startswith("o.") and members.get("type") == ["=", kind] and name.endswith("Param"):
            taken |= set(members)
    return taken


def find_differing(said, sent):
    return {name for name in {*said, *sent} if said.get(name) != sent.get(name)}


def is_thought(block):
    return block.get("type") in THOUGHTS or "reasoningContent" in block


def is_last_thought(said, sent, reply):
    """A message may not end in a thought, nor consist of thoughts; a summary without words is no end."""
    after = reply[reply.index(said) :] if said in reply else []
    after = [each for each in after if not is_unsigned_summary(each, None, reply) or each.get("content")]
    return sent is None and bool(after) and all(map(is_thought, after))


def is_unsigned_summary(said, sent, reply):
    """A compaction block without a signature is refused; its words go as text."""
    return said.get("type") == "compaction" and "signature" not in said and sent is None


def is_of_another_model(said, sent, reply):
    """Thoughts and calls before a `fallback` block are those of the model that gave up."""
    kinds = [each.get("type") for each in reply]
    of_it = is_thought(said) or said.get("type") == "tool_use"
    return sent is None and of_it and "fallback" in kinds[reply.index(said) :]


def is_unsigned_thought(said, sent, reply):
    """Claude refuses a thought without its signature."""
    return sent is None and "signature" not in said.get("reasoningContent", {}).get(
        "reasoningText", {"signature": 1}
    )


def is_unproven(said, sent, reply):
    """Reasoning without its encrypted content is refused where nothing is stored, and ids that depend on it go too."""
    unproven = any(each.get("type") == "reasoning" and "encrypted_content" not in each for each in reply)
    return unproven and (sent is None or find_differing(said, sent) <= {"id", "created_by"})


def is_only_said(said, sent, reply):
    """Members that are in the reply's types and not in the request's."""
    return sent is not None and all(
        name not in sent and (name == "created_by" or name not in members_taken(said.get("type")))
        for name in find_differing(said, sent)
    )


def is_status_of_reasoning(said, sent, reply):
    """The status of a reasoning item is refused when it is sent back."""
    return sent is not None and said.get("type") == "reasoning" and find_differing(said, sent) == {"status"}


def is_empty(said, sent, reply):
    """A message without content says nothing."""
    return said.get("type") == "message" and not said.get("content")


def is_chat(said, sent, reply):
    """Annotations are in no request; audio goes back by its id; reasoning that is wanted back is filled in."""
    if sent is None:
        return set(said) <= {"role", "annotations"}
    allowed = {"annotations", "reasoning_content"}
    if "audio" in said and sent.get("audio") == {"id": said["audio"]["id"]}:
        allowed.add("audio")
    return find_differing(said, sent) <= allowed


def is_unsigned(said, sent, reply):
    """A call without a signature gets the words that stand for one; neighbouring words are one text."""
    if sent is None or set(said) == {"text"}:
        return sent is not None and said.get("text", "") in sent.get("text", "")
    return "functionCall" in said and find_differing(said, sent) == {"thoughtSignature"}


REASONS = {
    "anthropic": (is_last_thought, is_unsigned_summary, is_of_another_model),
    "openai_responses": (
        is_last_thought,
        is_unproven,
        is_only_said,
        is_empty,
        is_status_of_reasoning,
    ),
    "openai_chat": (is_chat,),
    "gemini": (is_unsigned, is_last_thought),
    "bedrock_converse": (is_last_thought, is_unsigned_thought),
}


def find_nearest(said, sent, reply):
    """What of the next request was probably meant to be this; what has the id of another item of the reply was not."""
    others = {each.get("id") for each in reply} - {said.get("id"), None}
    alike = [
        each
        for each in sent
        if each.get("type") == said.get("type") and set(each) & set(said) and each.get("id") not in others
    ]
    return min(alike, key=lambda each: len(find_differing(said, each)), default=None)
