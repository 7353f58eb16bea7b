"""The format of tasks: what a task file may say, as values.

    prompt = "Refund order 4411."
    agent = "../support.toml"

    [expect]
    called = ["find_order", "refund"]
    contains = "refunded"

Every key of `[expect]` is one scorer. A trial passes if all of them pass.
"""

import re
from math import inf
from typing import Literal

import msgspec

from bridle.sim.faults.catalogue import parse_faults
from bridle.sim.responder.script_file import parse_steps
from bridle.values.base import Value
from bridle.values.errors import MisuseError

PersonAnswer = Literal["approve", "reject"]
TRIALS_MAX = 10_000


def as_texts(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def as_pattern(value: object) -> str:
    """The regular expression of a text `/…/`; empty for another value."""
    is_pattern = isinstance(value, str) and len(value) > 2 and value[0] == value[-1] == "/"
    return str(value)[1:-1] if is_pattern else ""


def check_pattern(key: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise MisuseError(f"{key}: {pattern!r} is not a regular expression: {error}") from None


class ExpectedCall(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """A call that the agent has to make: `[[expect.calls]]`."""

    tool: str
    """Name of the tool."""
    arguments: dict[str, object] = {}  # noqa: RUF012 - a frozen value
    """Arguments that the call must have; it may have others. A text `/…/` is a regular expression."""
    times: int | None = None
    """Exact number of such calls; without it, at least one."""
    outcome: str = ""
    """Outcome of the call, such as `ok`, `error`, `denied`; empty for any."""


class ExpectedFile(Value, kw_only=True, forbid_unknown_fields=True):
    """State of a file of the work folder after the run: `[expect.files."NAME"]`."""

    equals: str | None = None
    """The whole text."""
    contains: str | tuple[str, ...] = ()
    """Texts that the file contains."""
    matches: str | tuple[str, ...] = ()
    """Regular expressions that the file matches somewhere."""
    exists: bool = True
    """False if there must be no such file."""


class JudgeRubric(Value, kw_only=True, forbid_unknown_fields=True):
    """A model that reads the answer and scores it by a rubric: `[expect.judge]`."""

    rubric: str = ""
    """Criteria, in words."""
    model: str = ""
    """Model string of the judge; by default that of `suite.toml` (`[judge]`)."""
    pass_at: float | None = None
    """Lowest score, from 0 to 1, that passes; 0.7 by default."""
    usd: float | None = None
    """Limit of one verdict in US dollars."""

    def __post_init__(self) -> None:
        if self.pass_at is not None and not 0 <= self.pass_at <= 1:
            raise MisuseError(f"pass_at must be from 0 to 1, not {self.pass_at:g}")


class Expect(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """Scorers of a task: `[expect]`."""

    stop: str | tuple[str, ...] = "done"
    """Expected end of the run, or several of which one is expected; the default is `done`."""
    equals: str | None = None
    """The answer, without space around it."""
    contains: str | tuple[str, ...] = ()
    """Texts that the answer contains."""
    excludes: str | tuple[str, ...] = ()
    """Texts that the answer does not contain."""
    matches: str | tuple[str, ...] = ()
    """Regular expressions that the answer matches somewhere."""
    schema: dict[str, object] | str | None = None
    """JSON Schema that the answer, read as JSON, fits; or the path of a file with one."""
    output: dict[str, object] | None = None
    """Members that the answer, read as JSON, has with these values; it may have others."""
    called: tuple[str, ...] = ()
    """Tools that ran at least once."""
    not_called: tuple[str, ...] = ()
    """Tools that did not run."""
    order: tuple[str, ...] = ()
    """Tools that ran in this order; others may run in between."""
    calls: tuple[ExpectedCall, ...] = ()
    """Calls with their arguments."""
    files: dict[str, str | ExpectedFile] = {}  # noqa: RUF012 - a frozen value
    """Files of the work folder after the run: the whole text, or a table."""
    check: str | tuple[str, ...] = ()
    """Your own scorers: `checks.py:function`."""
    usd_max: float | None = None
    """Cost of the trial in US dollars, at most."""
    seconds_max: float | None = None
    """Time of the trial, at most; with a simulated clock, simulated seconds."""
    steps_max: int | None = None
    """Model replies, at most."""
    tool_calls_max: int | None = None
    """Tool calls that ran, at most."""
    tokens_max: int | None = None
    """Tokens read and written, at most."""
    cache_share_min: float | None = None
    """Share of the prompt tokens that came from the cache, at least; from 0 to 1."""
    judge: JudgeRubric | None = None
    """A model that scores the answer."""

    def __post_init__(self) -> None:
        for pattern in as_texts(self.matches):
            check_pattern("matches", pattern)
        for name, file in self.files.items():
            if isinstance(file, ExpectedFile):
                for pattern in as_texts(file.matches):
                    check_pattern(f"files.{name}", pattern)
        for call in self.calls:
            for value in call.arguments.values():
                if pattern := as_pattern(value):
                    check_pattern("calls", pattern)
        if self.cache_share_min is not None and not 0 <= self.cache_share_min <= 1:
            raise MisuseError(f"cache_share_min must be from 0 to 1, not {self.cache_share_min:g}")


class ToolFault(Value, kw_only=True, forbid_unknown_fields=True):
    """A tool that misbehaves: `[tool_faults.NAME]`."""

    says: str = ""
    """The tool runs, and the model receives this text instead of its result: a tool that lies."""
    error: str = ""
    """The tool does not run, and the model receives this error."""
    seconds: float = 0.0
    """Wait before the call, on the clock of the trial."""
    times: int | None = None
    """Only the first calls are affected."""

    def __post_init__(self) -> None:
        if bool(self.says) + bool(self.error) > 1 or not (self.says or self.error or self.seconds):
            raise MisuseError("tool_faults: give says or error, or seconds")


class Task(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """One task: a prompt, an agent, a world, and what is expected of the end."""

    prompt: str | tuple[str, ...] = ()
    """The prompt; several are given one after the other in one session."""
    name: str = ""
    """Unique in the suite; by default the name of the file without `eval_`."""
    agent: str | dict[str, object] = ""
    """Agent file, `FILE.py:function` that makes the agent, or a table with keys of an agent file."""
    settings: dict[str, object] = {}  # noqa: RUF012 - a frozen value
    """Keys of an agent file that replace those of the agent."""
    tools: tuple[str, ...] = ()
    """Files with tools that are added to those of the agent."""
    toolkit: bool = False
    """Add tools that read and write the files of the work folder."""
    fixtures: str = ""
    """Folder that is copied into the work folder before each trial."""
    files: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    """Files that are written into the work folder before each trial."""
    world: str = ""
    """`FILE.py:function` that gets the work folder and returns the state of the world, the context of the tools."""
    approvals: PersonAnswer | dict[str, PersonAnswer] | None = None
    """Answer of the simulated person to approvals: `"approve"` or `"reject"`, or one per tool. Without it the run
    ends as `waiting`."""
    replies: tuple[str | dict[str, object], ...] = ()
    """Replies of the simulated model; other models ignore them."""
    responder: str = ""
    """`FILE.py:function` that chooses the replies of the simulated model; other models ignore it."""
    faults: tuple[str, ...] = ()
    """Faults that the simulated provider injects; with another model the task is skipped."""
    tool_faults: dict[str, ToolFault] = {}  # noqa: RUF012 - a frozen value
    """Tools that misbehave."""
    refusals: bool = False
    """True if the simulated provider may refuse requests; otherwise a refused request fails the trial."""
    unused: bool = False
    """True if replies and faults may be left over; otherwise they fail the trial."""
    clock: Literal["", "simulated", "real"] = ""
    """Clock of the trial; by default simulated for simulated models, so that waits take no time."""
    drive: str = ""
    """`FILE.py:function` that runs the agent instead of giving it the prompts."""
    expect: Expect = Expect()
    """The scorers."""
    tags: tuple[str, ...] = ()
    """Words to select tasks by: `--tag`."""
    trials: int = 1
    """Times that the task is run."""
    pass_rate: float = 1.0
    """Share of the trials that has to pass."""

    def __post_init__(self) -> None:
        if not self.drive and not (self.prompts and all(each.strip() for each in self.prompts)):
            raise MisuseError('a task needs a prompt; add: prompt = "…"')
        if not 1 <= self.trials <= TRIALS_MAX:
            raise MisuseError(f"trials must be from 1 to {TRIALS_MAX:,}, not {self.trials}")
        if not 0 <= self.pass_rate <= 1:
            raise MisuseError(f"pass_rate must be from 0 to 1, not {self.pass_rate:g}")
        parse_faults(self.faults)
        if self.replies and self.responder:
            raise MisuseError("give replies or responder, not both")
        try:
            parse_steps(self.replies)
        except MisuseError as error:
            raise MisuseError(f"replies: {error}") from None

    @property
    def prompts(self) -> tuple[str, ...]:
        return as_texts(self.prompt)


class SuiteFile(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """The keys of `suite.toml`."""

    name: str = ""
    """Name of the suite in the store; by default that of its folder."""
    defaults: dict[str, object] = {}  # noqa: RUF012 - a frozen value
    """Keys of a task that all tasks have unless they say otherwise."""
    tasks: tuple[dict[str, object], ...] = ()
    """Tasks in this file: `[[tasks]]`."""
    matrix: dict[str, tuple[str | int | float | bool, ...]] = {}  # noqa: RUF012 - a frozen value
    """Values to combine: every task is run with every combination. Keys are those of an agent file."""
    harness: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    """Versions of Bridle to compare, by name: a Python, a virtual environment, a folder with the source, or `this`."""
    judge: JudgeRubric = JudgeRubric()
    """Default of every judge: model, usd, pass_at."""
    usd: float | None = None
    """Limit of one evaluation in US dollars."""
    jobs: int = 1
    """Trials at a time."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise MisuseError(f"jobs must be 1 or more, not {self.jobs}")
        if self.usd is not None and not 0 < self.usd < inf:
            raise MisuseError(f"usd must be a number above 0, not {self.usd:g}")
        for key, values in self.matrix.items():
            if not values or len(set(map(str, values))) < len(values):
                raise MisuseError(f"matrix: {key} needs one or more values, each of them once")


def describe_task(task: Task) -> bytes:
    """Bytes that change if the task changes."""
    return msgspec.json.encode(task, order="deterministic")
