"""The commands: what each does, its group, the module that implements it, and the names that were replaced.

A command has one word (`run`) or two (`session fork`), and `show` has a module for each view (`show --as raw`). Imports
nothing, so that the overview is there at once.
"""

COMMANDS = {
    "init": "write a starter project: agent, tools, test, policy",
    "run": "run an agent on a prompt",
    "chat": "talk with an agent, prompt after prompt",
    "resume": "continue an unfinished session",
    "approvals": "list and answer tool calls that need approval",
    "sessions": "list recent sessions",
    "show": "show a session: transcript, timeline, requests, cost",
    "session": "control, fork, compare, replay, export or redact a session",
    "cost": "show spending by session, model, tool, day or tenant",
    "budgets": "show shared budgets: spent and reserved",
    "memory": "list, add and remove notes of a tenant or session",
    "store": "back up, restore, verify and clean the log",
    "serve": "serve agents over HTTP, or open the sessions in a browser",
    "gateway": "budgets, fallback and the log between any client and any provider",
    "worker": "perform runs of agents that were started on Temporal",
    "eval": "run a suite of tasks, score it, compare it with a baseline",
    "check": "check code: waiting sessions, cacheable prompts, the lock file",
    "sim": "serve simulated providers on a local port",
    "config": "show the settings in force and where each comes from",
    "doctor": "check the installation, settings, keys and the log",
    "models": "list models: context, prices, abilities",
    "mcp": "show what MCP servers offer: tools, resources, prompts",
    "completion": "print a completion script for bash, zsh or fish",
}
GROUPS = {
    "start": ("init", "run", "chat"),
    "continue": ("resume", "approvals"),
    "look": ("sessions", "show", "session", "cost", "budgets"),
    "manage": ("memory", "store"),
    "serve": ("serve", "gateway", "worker"),
    "test": ("eval", "check", "sim"),
    "set up": ("config", "doctor", "models", "mcp", "completion"),
}
"""Commands by the title of their group in the list of all."""
FIRST_COMMANDS = ("init", "run", "chat", "resume", "approvals", "show", "cost", "serve")
"""The commands that `bridle` alone lists."""
SUBCOMMANDS = {
    "approvals": {
        "list": "list tool calls that need approval (default)",
        "approve": "approve a tool call",
        "reject": "reject a tool call",
    },
    "session": {
        "cancel": "end a run of another process",
        "steer": "send a message to a run of another process",
        "pause": "stop a run of another process after its step",
        "tail": "follow a session while another process runs it",
        "compensate": "undo what a run did",
        "fork": "branch a new session from a message of another",
        "diff": "compare two sessions",
        "replay": "replay a session offline, or against a changed agent",
        "export": "write a session as lines of JSON",
        "import": "read an exported session, verified",
        "verify": "check that a session is what was written",
        "redact": "remove content from a record or a note, and record why",
    },
    "store": {
        "verify": "check that the whole log is what was written",
        "backup": "copy the log while it is in use",
        "restore": "put a copy in the place of the log",
        "gc": "remove old sessions and unused content",
        "erase": "remove what the log has of one caller",
    },
    "check": {
        "waiting": "list the unfinished sessions that new code cannot continue",
        "prompts": "find code that makes prompts uncacheable",
        "lock": "detect changes of tools and instructions",
        "wire": "check the codecs against recorded provider traffic",
    },
}
DEFAULT_SUBCOMMANDS = {"approvals": "list"}
"""The second word that is meant if none is given."""
OWN_VIEWS = ("transcript", "timeline", "tree", "events")
"""Views of `show` in its own module; the first one is the default."""
VIEWS = {
    "log": "messages with the ids that `session fork --at` takes; --tree: the forks",
    "raw": "the requests that were sent, proven by their digests",
    "cache": "prompt-cache hits, and the reason for each miss",
    "cost": "spending, call by call",
    "audit": "who decided what, when, and under which policy",
}
"""Views of `show` that have a module and options of their own."""
HIDDEN_COMMANDS = ("candidates",)
"""Commands for the completion scripts, not for people."""
REPLACED_COMMANDS = {
    "approve": "approvals approve ID",
    "reject": "approvals reject ID",
    **{
        name: f"session {name} SESSION"
        for name in ("cancel", "steer", "pause", "tail", "compensate", "fork", "replay", "export", "redact")
    },
    "diff": "session diff A B",
    "import": "session import FILE",
    "verify": "store verify",
    "backup": "store backup FILE",
    "restore": "store restore FILE",
    "gc": "store gc",
    "erase": "store erase --caller X",
    "log": "show SESSION --as log",
    "raw": "show SESSION --as raw",
    "audit": "show SESSION --as audit",
    "cache": "show SESSION --as cache",
    "lint": "check prompts FILE.py",
    "lock": "check lock FILE.py",
    "wire": "check wire FILE",
    "inspect": "serve --open",
}
"""Earlier names of commands, each with what to type now."""
COMMAND_MODULES = {
    **{
        name: f"commands.setup.{name}"
        for name in ("init", "config", "doctor", "models", "mcp", "completion", *HIDDEN_COMMANDS)
    },
    **{name: f"commands.serving.{name}" for name in ("serve", "gateway", "worker")},
    **{f"session {name}": f"commands.control.{name}" for name in ("cancel", "steer", "pause")},
    **{f"session {name}": f"commands.{name}" for name in ("compensate", "fork", "diff")},
    **{f"session {name}": f"commands.storage.{name}" for name in ("export", "redact")},
    **{
        f"store {name}": f"commands.storage.{name}" for name in ("verify", "backup", "restore", "gc", "erase")
    },
    **{f"approvals {name}": f"commands.{name}" for name in ("approve", "reject")},
    **{f"check {name}": f"commands.{name}" for name in ("lock", "wire")},
    "approvals list": "commands.approvals",
    "chat": "chat.command",
    "check prompts": "commands.lint",
    "check waiting": "commands.check",
    "eval": "commands.evals.eval",
    "session import": "commands.storage.import_session",
    "session replay": "commands.replay.replay",
    "session tail": "show.tail",
    "session verify": "commands.storage.verify_session",
    "show": "show.command",
    "show --as audit": "commands.storage.audit",
    "show --as cache": "commands.cache",
    "show --as cost": "commands.cost",
    "show --as log": "commands.log",
    "show --as raw": "commands.replay.raw",
}
"""Modules of the commands that are not called as the command and in the folder commands."""


def list_command_names() -> list[str]:
    """Every command that has options: its words, in the order of the overview."""
    names: list[str] = []
    for name in COMMANDS:
        names += [f"{name} {word}" for word in SUBCOMMANDS[name]] if name in SUBCOMMANDS else [name]
        if name == "show":
            names += [f"show --as {view}" for view in VIEWS]
    return names


def describe_command(name: str) -> str:
    """What a command does, in a few words."""
    first, _, second = name.partition(" ")
    if second.startswith("--as "):
        return VIEWS[second.removeprefix("--as ")]
    return SUBCOMMANDS[first][second] if second else COMMANDS[first]


def find_view(words: list[str]) -> str:
    """The view that the words after `show` choose; empty without `--as`."""
    view = ""
    for at, word in enumerate(words):
        if word == "--":
            break
        if word == "--as" and at + 1 < len(words):
            view = words[at + 1]
        elif word.startswith("--as="):
            view = word.removeprefix("--as=")
    return view
