"""The first programs of a new user, beside the same programs with Pydantic AI.

    python docs/generate_programs.py     print the number of lines of each

The programs are files in examples/programs; tests/docs/test_programs.py runs them. To add one, write both files and a
row of PROGRAMS.
"""

import sys
from pathlib import Path

PLACE = Path(__file__).parent.parent / "examples" / "programs"
MIGRATIONS = PLACE.parent / "migrating"
PEER = "pydantic_ai"
PROGRAMS = (
    ("hello", "Hello", "One question, one answer."),
    (
        "typed_tools",
        "Typed tools",
        "A function is a tool: its signature is the schema, its docstring the description.",
    ),
    ("structured_output", "Structured output", "The answer is an instance of a type."),
    (
        "context",
        "Context",
        "Tools get an object of the caller, such as a database connection; it is never stored.",
    ),
    (
        "validators",
        "Validators",
        """\
Code checks the answer, and the model is asked again with the reason. Bridle records each decision, so that a resumed
run does not call the validator again.""",
    ),
    (
        "sub_agents",
        "Sub-agents",
        """\
An agent is a tool of another ([agents.md](agents.md)). With Bridle its run has a session of its own, which a resumed
outer run finds again.""",
    ),
    (
        "hand_over",
        "Hand-over",
        """\
The model chooses the agent that continues ([agents.md](agents.md#hand-over)). Bridle records the change in the session,
so that a resumed run continues with the right agent. With Pydantic AI, your program runs the next agent.""",
    ),
    (
        "hooks",
        "Hooks",
        """\
Code decides about a call before it runs ([hooks.md](hooks.md)). Bridle records each decision, so that a resumed run
does not call the hook again. The arguments a hook sets are checked against the tool's schema and the policy.""",
    ),
    (
        "approvals",
        "Approvals across processes",
        """\
`python approvals.py ask` ends as `waiting`. Another process, hours later, runs `python approvals.py answer`.
Bridle keeps the question and the answer in its store, bound to the exact arguments; a crash in between runs nothing
twice. With Pydantic AI, storing the messages is part of your program.""",
    ),
    (
        "fastapi_stream",
        "FastAPI stream",
        """\
What a browser may see of a run, as server-sent events ([streaming.md](streaming.md#server-sent-events)). For the
Vercel AI and AG-UI protocols, Pydantic AI has adapters.""",
    ),
    (
        "notebook",
        "Notebook",
        """\
A cell that shows the run while it happens. Bridle also shows tool calls and results; the Pydantic AI program shows
the text of the answer.""",
    ),
    (
        "test_agent",
        "Tests",
        "A model that replies what the test says. Bridle's is held to the rules of a real provider.",
    ),
)


def count_lines(path: Path) -> int:
    """Lines that are not blank."""
    return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def list_counts() -> list[tuple[str, int, int]]:
    """Title and number of lines of each program, ours and theirs."""
    return [
        (title, count_lines(PLACE / f"{name}.py"), count_lines(PLACE / PEER / f"{name}.py"))
        for name, title, _ in PROGRAMS
    ]


def programs() -> str:
    rows = [
        f"| [{title}](#{title.lower().replace(' ', '-')}) | {ours} | {theirs} |"
        for title, ours, theirs in list_counts()
    ]
    head = ["| program | lines with Bridle | lines with Pydantic AI |", "|---|---|---|"]
    return "\n".join([*head, *rows, *(_show_program(*program) for program in PROGRAMS)])


def _show_program(name: str, title: str, about: str) -> str:
    ours, theirs = ((PLACE / folder / f"{name}.py").read_text(encoding="utf-8") for folder in ("", PEER))
    return f"""
## {title}

{about}

{_place_side_by_side(("Bridle", ours), ("Pydantic AI", theirs))}"""


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


if __name__ == "__main__":
    for title, ours, theirs in list_counts():
        sys.stdout.write(f"{title:28} {ours:3} {theirs:3}\n")
