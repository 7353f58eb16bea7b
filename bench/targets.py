"""The targets of speed and weight, and what a recorded measurement says about each.

`bench/speed.py` records the figures in `bench/speed.json`; docs/generate.py writes docs/evidence.md from that file.
"""

from typing import NamedTuple

PROTOS = {"anthropic": "Messages", "chat": "Chat", "responses": "Responses"}
OURS = "bridle"


class Target(NamedTuple):
    what: str
    suite: str
    figure: str
    """The column of the suite."""
    against: str
    """Another contestant, another column of ours after `=`, or nothing for a figure by itself."""
    limit: float
    unit: str = "x"
    at_least: bool = False

    def measure(self, suites):
        """The figure, or None if the recording lacks one of its parts."""
        table = suites.get(self.suite, {})
        mine = table.get(OURS, {}).get(self.figure)
        if not self.against:
            return mine
        ours = self.against.startswith("=")
        other = table.get(OURS if ours else self.against, {}).get(self.against[1:] if ours else self.figure)
        return None if mine is None or not other else mine / other

    def is_met(self, value):
        return value >= self.limit if self.at_least else value <= self.limit

    def describe_limit(self):
        return f"{'≥' if self.at_least else '≤'} {format_figure(self.limit)} {self.unit}"


TARGETS = [
    *(
        Target(f"step of {name}, whole, to raw aiohttp", "loop", f"{proto} json", "raw-aiohttp", 2.0)
        for proto, name in PROTOS.items()
    ),
    *(
        Target(f"step of {name}, streamed, to raw aiohttp", "loop", f"{proto} sse", "raw-aiohttp", 1.5)
        for proto, name in PROTOS.items()
    ),
    Target("step of Messages, whole, to Pydantic AI", "loop", "anthropic json", "pydantic-ai", 1 / 14),
    Target("step of Messages, streamed, to Pydantic AI", "loop", "anthropic sse", "pydantic-ai", 1 / 20),
    Target("step of Messages, whole, to the floor (stretch)", "loop", "anthropic json", "floor", 8.0),
    *(
        Target(f"text delta of {name}, to raw aiohttp", "text", f"{proto} burst", "raw-aiohttp", 0.4)
        for proto, name in PROTOS.items()
    ),
    *(
        Target(f"{name}: step 400 to step 10", "grow", f"{proto} step 400", f"={proto} step 10", 1.3)
        for proto, name in PROTOS.items()
    ),
    Target("Messages: step 400, to agno", "grow", "anthropic step 400", "agno", 1 / 25),
    Target("Messages: step 400, to Pydantic AI", "grow", "anthropic step 400", "pydantic-ai", 1 / 25),
    Target("steps per core-second at 512 sessions", "rate", "anthropic json x512", "", 1_500, "steps/s", True),
    Target("early start of a tool", "early", "anthropic first", "", 1.0, "ms"),
    Target("memory per open streaming session", "memory", "anthropic session", "", 40, "kB"),
    Target("resident memory after import and runs", "memory", "anthropic process", "", 50, "MB"),
    Target("function calls of a step, Messages, whole", "calls", "anthropic/whole", "", 800, "calls"),
    Target("durable steps per CPU second at 100 sessions, SQLite to memory", "durable", "100 cpu", "", 0.6, "x", True),
    Target("import of Agent, Budget and tool, CPU", "start", "first use", "", 60, "ms"),
    Target("`bridle --help`, wall", "start", "help", "", 120, "ms"),
]  # fmt: skip


def format_figure(value):
    return (
        f"{value:,.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2g}"
        if value < 0.1
        else f"{value:.2f}"
    )


def judge(suites):
    """(target, measured value) of every target that the recording has figures for."""
    measured = [(target, target.measure(suites)) for target in TARGETS]
    return [(target, value) for target, value in measured if value is not None]
