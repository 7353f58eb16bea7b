"""Hooks: user code that observes, changes, refuses or answers at five points of a run, as data.

A hook's decision is recorded as `HookDecided`. Resuming and replaying a session use the recorded decision and
do not call the hook again.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from .base import EventBase, Value
from .calls import ResourceClaim
from .message import Media, Message, Text, ViewChange
from .model import Model

HookPoint = Literal["before_model", "after_model", "before_tool", "after_tool", "on_end"]
HOOK_POINTS: tuple[HookPoint, ...] = ("before_model", "after_model", "before_tool", "after_tool", "on_end")
HookAction = Literal["continue", "change", "refuse", "answer", "retry", "fail"]
HOOK_SECONDS_DEFAULT = 30.0


class HeadText(Value, kw_only=True):
    """A text of the request outside the conversation: of the system prompt, of a tool, of the output type."""

    place: str
    """Name of the place, such as `system 0` or `tool search description`."""
    text: str
    is_json: bool = False
    """True for a JSON Schema or the JSON of an option; a new text must be JSON too."""
    is_given: bool = False
    """True if it was given for this run, as a client of `bridle gateway` does; False for a text of the agent."""


class HeadEdit(Value, kw_only=True):
    """Replacement of a text outside the conversation, wherever it stands."""

    digest: str
    """Digest of the text that is replaced."""
    text: str


class HookSpec(Value, kw_only=True):
    """A registered hook."""

    name: str
    points: tuple[HookPoint, ...]
    timeout_seconds: float = HOOK_SECONDS_DEFAULT
    """Time for one decision; a hook that takes longer has failed, which ends the run."""


class HookDecided(EventBase, kw_only=True, tag="hook_decided"):
    """A hook decided at one point of the run."""

    hook: str
    """Name of the hook; empty if a session was resumed without the hook that was due."""
    point: HookPoint
    action: HookAction = "continue"
    call_id: str = ""
    """The tool call, at the points `before_tool` and `after_tool`."""
    reason: str = ""
    """Reason of a refusal, of a request to try again, or of a failure of the hook."""
    replacement: str | None = None
    """Text that is added (`before_model`), or that replaces the reply, the result or the answer."""
    parts: tuple[Text | Media, ...] = ()
    """Parts that replace those of a tool result."""
    arguments: str | None = None
    """Arguments that replace those of a tool call, as JSON text."""
    resource_claim: ResourceClaim | None = None
    """The tool's resource claim for these arguments."""
    edits: tuple[ViewChange, ...] = ()
    """Edits of messages that the hook had not decided about before."""
    head_edits: tuple[HeadEdit, ...] = ()
    """Edits of texts outside the conversation."""
    withheld: tuple[str, ...] = ()
    """Ids of the messages that a refusal at `before_model`, or a second failure, keeps out of every later prompt."""
    output_error: str = ""
    """Reason why the output type rejects the changed reply."""


class Refuse(Value, kw_only=True, gc=True):
    """Decision of a hook: do not continue.

    The run ends as `refused` at `before_model`, `after_model` and `on_end`. At `before_tool` the call is not
    run, at `after_tool` its result is withheld, and the model receives the reason.
    """

    reason: str
    messages: Sequence[str] = ()
    """before_model: ids of the refused messages, which no later prompt contains; by default all new messages."""


class Answer(Value, kw_only=True):
    """Decision of a hook: use this text in place of the model's reply, the tool's result, or the answer."""

    text: str


class Change(Value, kw_only=True, gc=True):
    """Decision of a hook: continue with a change. Each point accepts the fields named for it."""

    text: str | None = None
    """before_model: a message that is added to the conversation. after_model, on_end: the new text.
    after_tool: the new result."""
    arguments: Mapping[str, object] | None = None
    """before_tool: the new arguments; they are validated, and rules and approvals apply to them."""
    parts: Sequence[Text | Media] = ()
    """after_tool: the new result, if it is more than text."""
    edits: Sequence[ViewChange] = ()
    """before_model: edits of new messages; see `bridle.hooks.edit_texts`."""
    head: Sequence[HeadText] = ()
    """before_model: texts that replace those of `ModelInput.new_texts` at the same places."""


HookDecision = Refuse | Answer | Change | None
"""Return value of a hook; None to continue unchanged."""


class ModelInput(Value, kw_only=True):
    """The request that a `before_model` hook decides about."""

    step: int
    model: Model
    messages: tuple[Message, ...]
    """The whole conversation, as it will be sent."""
    new_messages: tuple[Message, ...]
    """The messages that this hook has not decided about, whatever their origin; only these can be edited."""
    new_texts: tuple[HeadText, ...] = ()
    """System prompt, tools and output type, if they changed since this hook decided last."""


class FinishedRun(Value, kw_only=True):
    """The end of a run, for an `on_end` hook."""

    stop: str
    """Stop reason, as on `Result.stop`."""
    reason: str
    answer: str
