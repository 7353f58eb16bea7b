"""The state of a session: what its events so far add up to.

Nothing in here is kept anywhere but in the events; a state can be thrown away and
folded again at any time.  `run` is the part that starts afresh with every prompt.
"""

from enum import StrEnum
from typing import Literal

from ..values.cached import PromptDropped, PromptKept
from ..values.compensation import Compensation
from ..values.errors import Failure, FailureKind
from ..values.event import Compacted, PrefixMoved, RunStop, Spot, ViewChanged
from ..values.message import Message, Reply, Transcript
from ..values.settings import Settings
from ..values.subrun import Subrun
from ..values.usage import Budget
from ..values.value import Value
from ..values.whole import Whole
from .asked import Asked
from .fitting import Unfit
from .held_conversation import HeldConversation
from .hits import Hits
from .notebook import Notebook
from .opencall import OpenCall
from .receipts import Doubt, Receipt
from .refused_parameters import Parameters
from .spent import Spent
from .squeeze import Squeeze
from .turn import Turn


class Phase(StrEnum):
    NEW = "new"
    RESTING = "resting"  # the person's turn
    ASKING = "asking"  # the model's turn
    JUDGING = "judging"  # a reply without calls is in: is it an answer?
    ACTING = "acting"  # the tools' turn
    WAITING = "waiting"  # a person's turn, to allow a call or not


class Run(Value):
    """What has happened since the person spoke last."""

    budget: Budget = Budget()
    caller: str = ""
    tenant: str = ""
    turn: Turn = Turn()
    spent: Spent = Spent()
    inner: Spent = Spent()
    """What runs inside its tools have spent, beside that."""
    subruns: tuple[Subrun, ...] = ()
    reached: bool = False
    """A model of this run has sent something, if only the beginning of a reply or an error."""
    crowded: str = ""
    """What is used of a budget shared with others, when it is so much that the model is to be told."""
    capped: Literal["", "own", "shared"] = ""
    """A call was not run because no more of them may be, and whose limit that is."""
    wrapped: str = ""
    """What the model was told to finish for."""
    seconds: float = 0.0
    """How long it took, when it ended last."""
    started_at: float = 0.0
    attempt: int = 0
    """How often the current step was asked already."""
    tries: int = 0
    """How many of these the current model was asked."""
    rests: int = 0
    """How often the current step found its endpoint resting."""
    left: tuple[tuple[str, str], ...] = ()
    """Models of the chain that this run has done with, by seat, and why."""
    failure: Failure | None = None
    blamed: tuple[Spot, ...] = ()
    """What the provider refused by name and is to be left out."""
    repairs: int = 0
    """How often something was left out for that reason."""
    chance: float = 1.0
    """What was drawn when it failed."""
    partial: str = ""
    """What the model had said when its reply broke off."""
    reply: Reply | None = None
    """The reply being judged."""
    objection: str = ""
    """What the type asked for has against that reply."""
    said: str = ""
    """Words of an answer that was cut at its length and is being continued."""
    nudges: int = 0
    pauses: int = 0
    rejections: int = 0
    """How many answers did not have the shape asked for."""
    unchained: bool = False
    """The provider has forgotten what it was to keep: send everything, once."""
    forbidden: bool = False
    """The model was asked to call nothing; not every wire can tell it so."""
    refusals: tuple[FailureKind, ...] = ()
    """Failures of the current step that were to be mended by another request."""
    reasoning: Literal["", "refused", "left out"] = ""
    """Whether the provider refused earlier reasoning in this run, and what became of it."""
    left_out: Parameters = ()
    """Optional parameters that the current endpoint refused; its requests go without them."""
    echo: Literal["", "refused"] = ""
    """Whether the provider refused a request with its last reply in it, and did not say what was wrong."""
    noted: tuple[str, ...] = ()
    """What was changed in this run's requests to make them acceptable, each recorded once."""
    adjusted: tuple[str, ...] = ()
    """What is asked for and cannot be sent, where that ends the run."""
    squeeze: Squeeze = Squeeze()
    more_room: bool = False
    """The last reply ran out of room: ask for the most the model can give."""
    unread: str = ""
    """Why the model has probably not read all of the prompt, where that ends the run."""
    output: str | None = None
    """The accepted structured answer, as JSON text."""
    done: tuple[Compensation, ...] = ()
    """What was done and can be undone, in the order it was done."""
    batches: tuple[str, ...] = ()
    """Signatures of the latest batches of calls and their results."""
    prefix_moved: PrefixMoved | None = None
    """What was found to have moved in front of the request that is due."""
    stop: RunStop | None = None
    reason: str = ""
    answer: str = ""


class State(Value):
    phase: Phase = Phase.NEW
    session: str = ""
    owner: str | None = None
    """The tenant of the first prompt, to whom the session belongs; None before that."""
    settings: Settings = Settings()
    transcript: Transcript = Transcript()
    view: tuple[Message, ...] = ()
    """The transcript as models see it: the same messages, with the recorded changes."""
    pictures: int = 0
    """How many pictures from tools are in the view."""
    recorded: tuple[ViewChanged | Compacted, ...] = ()
    """Every change of the view, whichever model it was for."""
    covered: int = 0
    """How many messages of the transcript a summary stands for in the view."""
    prompts: tuple[str, ...] = ()
    """The messages that people said."""
    changed: frozenset[Spot] = frozenset()
    """What of the transcript is changed in the view."""
    moved: tuple[tuple[int, int], ...] = ()
    """Stretches of the transcript before which something was changed after they had been said."""
    unfit: tuple[Unfit, ...] = ()
    """What in the view the current model cannot take."""
    shown: tuple[str, ...] = ()
    """The hidden tools that were shown since, in that order; some may be gone from the settings."""
    shown_at: tuple[int, ...] = ()
    """How many messages there were when each of them was shown."""
    wholes: tuple[Whole, ...] = ()
    """The results of which only an excerpt is in the transcript: what may be read from the store."""
    imported_instructions: str = ""
    """The system prompt of the history this session began with."""
    looked: bool = False
    """Whether the tools that the session's first words are about were looked for."""
    owed: tuple[str, ...] = ()
    """Hidden tools that the model has found or called, to be shown before it is asked again."""
    notebook: Notebook = Notebook()
    calls: tuple[OpenCall, ...] = ()
    sifted: bool = False
    """A tool was started since the calls came in or the session was taken over: every call that needs no tool
    was answered before that."""
    receipts: tuple[Receipt, ...] = ()
    """Calls that were done and need not be done again, see receipts.py."""
    doubts: tuple[Doubt, ...] = ()
    """Calls that were answered without anybody knowing whether they took effect."""
    proof: str = ""
    """Hash of the record of the latest question to the model; the keys of its calls are made of it."""
    hits: Hits = Hits()
    chained_from: int = 0
    """How many messages there were when the provider was first told to keep replies."""
    conversation: HeldConversation | None = None
    """The provider's conversation object, where one is used."""
    named: PromptKept | PromptDropped | None = None
    asked: Asked | None = None
    """None before the first request, and when it is known already that the next one begins otherwise."""
    run: Run = Run()
    total: Spent = Spent()
    inner: Spent = Spent()
    """What runs inside its tools have spent, beside that."""
    earlier_seconds: float = 0.0
    """How long the runs before this one took."""
    replies: int = 0
    prompt_tokens: int = 0
    """Estimate of the next prompt: what the provider counted last, plus what was added since."""
    counted_tokens: int = 0
    """How much of that a provider has counted; the rest is on the dear side."""
    slack_tokens: int = 0
    """By how much it is thought too dear since the conversation was made shorter."""
    windows: tuple[tuple[str, int], ...] = ()
    """Windows that servers named in refusing a prompt, by seat, where smaller than the model's own."""
    now: float = 0.0
    """Time of the newest event: the only time the core knows."""
