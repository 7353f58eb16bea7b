"""What the tests of each pair of features show; `docs/generate.py` writes docs/seams.md from this table.

The pairs are played by tests/story/seams, which also checks that none is missing here.
"""

SEAMS: dict[tuple[str, str], str] = {
    (
        "hand-over",
        "hand-over",
    ): "Two hand-overs in one run are each recorded once, and each agent does its part.",
    (
        "hand-over",
        "approval",
    ): "The agent that took over asks; the agent that began the run takes the answers and resumes it.",
    (
        "hand-over",
        "budget",
    ): "Calls of every agent count in run, session, caller, tenant and pool, and a limit stops any of them.",
    (
        "hand-over",
        "stream",
    ): "One stream shows the records of every agent of the run, in the order of the log.",
    (
        "hand-over",
        "resume",
    ): "After a crash at any record the agent that has the run goes on; its tool is probed before a second call.",
    ("hand-over", "upgrade"): "Calls of the agent that took over are compared with its new tools.",
    (
        "hand-over",
        "tenant",
    ): "Runs of two tenants are handed over at the same time; no request has a text of both.",
    (
        "hand-over",
        "memory",
    ): "With `Memory(handover=True)` every agent of the run shows the caller's notes, and no other caller's.",
    (
        "hand-over",
        "nested",
    ): "An agent that took over uses another as a tool; and an agent that is a tool hands over.",
    (
        "approval",
        "approval",
    ): "Calls wait twice in one run: approved ones run once, edited ones with the edit, rejected ones not at all.",
    (
        "approval",
        "budget",
    ): "Approved calls run once, also if a limit ends the run between the answer and the answer's use.",
    (
        "approval",
        "stream",
    ): "Questions, and after the answers their results, are in the streams of both runs.",
    (
        "approval",
        "resume",
    ): "A crash between question, answer and result loses no answer and repeats no call.",
    (
        "approval",
        "upgrade",
    ): "Of three calls, one is answered in the old version and two in the new one; code without the tool is refused.",
    (
        "approval",
        "tenant",
    ): "A tenant sees and answers its own questions; another is refused before anything is recorded.",
    ("approval", "memory"): "A resumed run shows the notes that it began with, the caller's own.",
    (
        "approval",
        "nested",
    ): "Calls of an inner agent wait in its session; the outer run goes on with their results.",
    (
        "budget",
        "budget",
    ): "Limits of an agent and of a run hold together; all five scopes count each call once.",
    ("budget", "stream"): "A watched run spends and stops as one that nobody watches.",
    (
        "budget",
        "resume",
    ): "Each call is counted once whichever record was the last; a call without an outcome counts as presumed.",
    ("budget", "upgrade"): "The run goes on in the new version with its limits and with what it had spent.",
    ("budget", "tenant"): "Each tenant has its own account; the pool counts both.",
    ("budget", "memory"): "Two callers of a tenant have accounts of their own, and share the tenant's.",
    (
        "budget",
        "nested",
    ): "Inner calls count in every budget around them; an inner agent that a limit stops says so in its result.",
    (
        "stream",
        "stream",
    ): "Two viewers of a run see the same records, and deltas that add up to the same text.",
    (
        "stream",
        "resume",
    ): "After a crash, the stream of the resumed run shows what the log gets from there on.",
    ("stream", "upgrade"): "The stream of the run in the new version shows how the call was mapped.",
    ("stream", "tenant"): "Streams of two tenants at the same time show the records of their own sessions.",
    ("stream", "memory"): "The stream shows which notes were loaded, as the log has it.",
    (
        "stream",
        "nested",
    ): "The outer stream shows every record and all text of the inner session, once and in order.",
    ("resume", "resume"): "Two crashes in a run, at any two records: paid once, and the log replays.",
    ("resume", "upgrade"): "A crash at any record before, during and after the upgrade pays once.",
    ("resume", "tenant"): "Runs of two tenants crash at the same record, and each goes on as its tenant.",
    ("resume", "memory"): "A note is written once whichever record was the last, and is in the next visit.",
    (
        "resume",
        "nested",
    ): "The resumed outer run finds its inner run; no inner run begins twice, and `bridle cost` counts it once.",
    (
        "upgrade",
        "upgrade",
    ): "Two upgrades while a call waits (new name, then new arguments) lead to one payment.",
    ("upgrade", "tenant"): "Runs of two tenants are upgraded one by one.",
    ("upgrade", "memory"): "The notes stay those of the caller in the new version.",
    (
        "upgrade",
        "nested",
    ): "Calls of an inner agent are compared with its new code, whichever agent is asked to answer or resume.",
    (
        "tenant",
        "tenant",
    ): "Three tenants with a caller of the same name at the same time: no text, note or cost of another.",
    ("tenant", "memory"): "Callers of the same name in two tenants have notes of their own.",
    (
        "tenant",
        "nested",
    ): "Inner sessions belong to the tenant of the outer one; another tenant is refused in both.",
    ("memory", "memory"): "Three callers of one tenant: each is shown its own notes.",
    ("memory", "nested"): "Inner agents with memory show the notes of the outer caller.",
    ("nested", "nested"): "Agents in agents: one session each, one run each, and costs that add up outside.",
}
