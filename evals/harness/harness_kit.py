"""A short form of the tasks of this suite."""

from bridle.evals import Expect, Task

AGENTS, DRIVES, CHECKS = "harness_agents.py", "harness_drives.py", "harness_checks.py"


def task(name, *replies, options="plain", prompt="Go.", drive="", check=(), tags=(), faults=(), **more):
    """A task with scripted replies; `options` names the options of its agent, `check` its own scorers.

    `drive` names a function of harness_agents.py, or with its file, one of another file (`DRIVES`).

    Keywords that are fields of a task are set there; all others are keys of `[expect]`.
    """
    fields = {key: more.pop(key) for key in (*more,) if key in Task.__struct_fields__}
    own = (check,) if isinstance(check, str) else check
    return Task(
        name=name,
        prompt=prompt,
        replies=replies,
        faults=faults,
        agent=f"{AGENTS}:make_agent",
        settings={"options": options},
        drive=drive if not drive or ":" in drive else f"{AGENTS}:{drive}",
        tags=tags,
        expect=Expect(check=tuple(f"{CHECKS}:{each}" for each in ("keeps_the_rules", *own)), **more),
        **fields,
    )
