"""Limits are kept, and what was spent is known."""

from harness_kit import DRIVES, task

B = ("budgets",)
LOOKS = tuple(f'!call look {{"what": "{"x" * n}"}}' for n in range(1, 7))

TASKS = [
    task("steps", *LOOKS[:2], options="two steps", tags=B, stop="steps", check="used_two_steps"),
    task("steps-are-enough", LOOKS[0], "Done.", options="two steps", tags=B, check="used_two_steps"),
    task(
        "steps-raised",
        *LOOKS[:2],
        "Done.",
        options="two steps",
        drive="resume_with_more",
        tags=B,
        equals="Done.",
        check="was_resumed",
    ),
    task("tool-calls", "\n".join(LOOKS[:2]), options="one call", tags=B, stop="budget", check="ran_once"),
    task(
        "one-call-is-enough", LOOKS[0], "Done.", options="one call", tags=B, equals="Done.", check="ran_once"
    ),
    task(
        "dollars",
        "!repeat 6\n" + '!call recite {"lines": 300}',
        options="one cent",
        tags=B,
        stop=("budget", "no_progress"),
        check="stayed_below_a_cent",
        unused=True,
    ),
    task(
        "tokens",
        "!repeat 6\n" + '!call recite {"lines": 200}',
        options="few tokens",
        tags=B,
        stop=("budget",),
        check="stayed_below_the_tokens",
        unused=True,
    ),
    task("seconds", "Never.", faults=("stall-at-first-byte",), options="ten seconds", tags=B, stop="seconds"),
    task(
        "session-steps",
        LOOKS[0],
        "One.",
        LOOKS[1],
        prompt=("a", "b"),
        options="session steps",
        tags=B,
        stop="steps",
        check="session_had_three_steps",
    ),
    task(
        "wrap-up", *LOOKS[:2], "Done.", options="wraps up", tags=B, equals="Done.", check="was_told_to_finish"
    ),
    task(
        "pool",
        '!call recite {"lines": 300}',
        "Done.",
        drive="share_pool",
        tags=B,
        stop=("done", "budget"),
        check="pool_was_not_exceeded",
        unused=True,
    ),
    task(
        "inner-run",
        prompt='!call ask_inner {"question": "!say Inner."}\n!then\n!say Outer.',
        drive="nest",
        tags=B,
        equals="Outer.",
        check="inner_run_is_charged",
    ),
    task(
        "session-seconds",
        "!call nap",
        "One.",
        "!call nap",
        prompt=("a", "b"),
        drive=f"{DRIVES}:nap_twice",
        tags=B,
        stop="seconds",
        check="three_requests",
    ),
    task(
        "pool-calls",
        "\n".join(LOOKS[:2]),
        options="pool of one call",
        tags=B,
        stop="budget",
        check=("ran_once", "one_request"),
    ),
    task(
        "pool-wrap-up",
        *LOOKS[:2],
        "Done.",
        options="pool that warns",
        tags=B,
        equals="Done.",
        check="was_told_to_finish",
    ),
]
