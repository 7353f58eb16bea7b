"""The recipes of docs/cookbook.md, and the pairs of programs of docs/migrating.md.

The recipes are files in examples/programs; tests/docs/test_programs.py runs them. To add one, write the file and a row
of PROGRAMS.
"""

from pathlib import Path

PLACE = Path(__file__).parent.parent / "examples" / "programs"
MIGRATIONS = PLACE.parent / "migrating"
PROGRAMS = (
    ("hello", "Hello", "One question, one answer."),
    (
        "typed_tools",
        "Typed tools",
        """\
A function is a tool: its signature is the schema, its docstring the description ([tools.md](tools.md)).""",
    ),
    (
        "structured_output",
        "Structured output",
        "The answer is an instance of a type ([output.md](output.md)).",
    ),
    (
        "context",
        "Context",
        """\
Tools get an object of the caller, such as a database connection; it is never stored ([context.md](context.md)).""",
    ),
    (
        "validators",
        "Validators",
        """\
Code checks the answer, and the model is asked again with the reason ([output.md](output.md#validators)). Each decision
is recorded, so that a resumed run does not call the validator again.""",
    ),
    (
        "sub_agents",
        "Sub-agents",
        """\
An agent is a tool of another ([agents.md](agents.md)). Its run has a session of its own, which a resumed outer run
finds again.""",
    ),
    (
        "hand_over",
        "Hand-over",
        """\
The model chooses the agent that continues ([agents.md](agents.md#hand-over)). The change is recorded in the session, so
that a resumed run continues with the right agent.""",
    ),
    (
        "hooks",
        "Hooks",
        """\
Code decides about a call before it runs ([hooks.md](hooks.md)). Each decision is recorded, so that a resumed run does
not call the hook again.""",
    ),
    (
        "approvals",
        "Approvals across processes",
        """\
`python approvals.py ask` ends as `waiting`. Another process, hours later, runs `python approvals.py answer`.
The question and the answer are in the store, bound to the exact arguments; a crash in between runs nothing twice
([approvals.md](approvals.md)).""",
    ),
    (
        "fastapi_answer",
        "FastAPI answer",
        """\
A handler that is annotated `-> Result` sends `result.to_dict()`: text, output, stop, cost, usage, session. In another
framework, return `result.to_dict()` as JSON. Await the run: `run_sync` would block the server
([sessions.md](sessions.md#in-a-program-with-an-event-loop)).""",
    ),
    (
        "fastapi_stream",
        "FastAPI stream",
        """\
What a browser may see of a run, as server-sent events ([streaming.md](streaming.md#server-sent-events)). For the AI SDK
and AG-UI protocols there is [bridle serve](serve.md).""",
    ),
    (
        "notebook",
        "Notebook",
        """\
A cell that shows the run while it happens, with its tool calls and results.""",
    ),
    (
        "test_agent",
        "Tests",
        "A model that replies what the test says, held to the rules of a real provider ([testing.md](testing.md)).",
    ),
)


def cookbook() -> str:
    return "\n".join(_show_program(*program) for program in PROGRAMS)


def _show_program(name: str, title: str, about: str) -> str:
    program = (PLACE / f"{name}.py").read_text(encoding="utf-8")
    return f"""
## {title}

{about}

```python
{program}```"""


def _place_side_by_side(left: tuple[str, str], right: tuple[str, str]) -> str:
    """Two programs with their titles in one row of a table."""
    return f"""<table><tr><th>{left[0]}</th><th>{right[0]}</th></tr><tr><td>

```python
{left[1]}```

</td><td>

```python
{right[1]}```

</td></tr></table>"""


def from_pydantic_ai() -> str:
    return _show_migration("Pydantic AI", "pydantic_ai")


def from_openai_agents() -> str:
    return _show_migration("OpenAI Agents SDK", "openai_agents")


def from_langgraph() -> str:
    return _show_migration("LangGraph", "langgraph")


def from_openai_sdk() -> str:
    return _show_migration("OpenAI SDK", "openai_sdk")


def _show_migration(title: str, name: str) -> str:
    theirs, ours = ((MIGRATIONS / f"with_{each}.py").read_text(encoding="utf-8") for each in (name, "bridle"))
    return _place_side_by_side((title, theirs), ("Bridle", ours))
