"""What follows a failure: retry, repair, fall back, stop; and what follows a crash."""

from harness_kit import DRIVES, task

R = ("recovery",)
CALL = '!call put {"box": "a", "value": 5}'
SAFE = (CALL, {"expect": "put 5 into a", "say": "all is well"})
CRASHES = CALL + '\n!call order {"item": "tea"}\n!then\n!call look {"what": "sea"}\n!then\n!say all is well'


def survive(name, *faults, drive="", check=(), first=(), **more):
    return task(
        name,
        *first,
        *SAFE,
        faults=faults,
        drive=drive,
        tags=R,
        contains="all is well",
        check=("ran_once", "retried", *check),
        **more,
    )


TASKS = [
    survive("error-529", "error-529"),
    survive("error-500", "error-500"),
    survive("error-503-wait", "error-503-wait:7", check=("waited_as_told",)),
    survive("error-429-wait", "error-429-wait:9", check=("waited_as_told",)),
    survive("error-429-date", "error-429-date:8", check=("waited_as_told",)),
    survive("three-failures", "error-529", "error-500", "error-503", check=("waited_for_backoff",)),
    survive("reset", "reset:60", drive="stream", check=("partial_text_is_void",)),
    survive("stall-at-connect", "stall-at-connect"),
    survive("stall-at-first-byte", "stall-at-first-byte"),
    survive("stall-midway", "stall-midway", drive="stream"),
    survive("truncated-json", "truncated-json"),
    survive("overloaded-in-stream", "overloaded-in-stream", drive="stream"),
    survive("missing-end", "missing-end", drive="stream"),
    survive("out-of-room", "out-of-room", first=(CALL,), check=("truncated_call_did_not_run",)),
    survive("malformed-call", "malformed-call", first=(CALL,)),
    task(
        "harmless-stream",
        *SAFE,
        faults=("comments", "unknown-event"),
        drive="stream",
        unused=True,
        tags=R,
        contains="all is well",
        check="ran_once",
    ),
    task(
        "duplicate-call", *SAFE, faults=("duplicate-call",), tags=R, contains="all is well", check="ran_once"
    ),
    task("wrong-finish", *SAFE, faults=("wrong-finish",), tags=R, contains="all is well", check="ran_once"),
    task(
        "empty-reply", CALL, *SAFE, faults=("empty-reply",), tags=R, contains="all is well", check="ran_once"
    ),
    task("refusal", "Never.", faults=("refusal",), tags=R, stop="refused"),
    task("quota", "Never.", faults=("quota",), tags=R, stop="failed", check="was_not_retried"),
    task(
        "final-error", "Never.", faults=("error-500-final",), tags=R, stop="failed", check="was_not_retried"
    ),
    task("unauthorized", "!error 401\n!say Never.", tags=R, stop="failed", check="was_not_retried"),
    task(
        "attempts-used",
        "Never.",
        faults=("error-529", "error-529"),
        options="few attempts",
        tags=R,
        stop="failed",
        check="asked_twice",
    ),
    task(
        "fallback",
        prompt="!say all is well",
        faults=("quota",),
        options="chain",
        tags=R,
        contains="all is well",
        check="switched",
    ),
    task("crashes", prompt=CRASHES, drive="crash", tags=R, check="survived_every_crash"),
    task(
        "probed",
        '!call ship {"item": "tea"}',
        {"expect": "tea was shipped before", "say": "Shipped."},
        options="careful",
        drive=f"{DRIVES}:interrupt",
        tags=R,
        equals="Shipped.",
        check=("ran_once", "was_probed"),
    ),
    task(
        "probed-after-cancel",
        '!call ship {"item": "tea"}',
        {"expect": "tea was shipped before", "say": "Shipped."},
        options="careful",
        drive=f"{DRIVES}:cancel",
        tags=R,
        equals="Shipped.",
        check=("ran_once", "was_probed"),
    ),
    task(
        "asked-after-cancel",
        '!call mail {"to": "ann"}',
        options="careful",
        drive=f"{DRIVES}:cancel",
        tags=R,
        stop="waiting",
        check=("ran_once", "one_question"),
    ),
    task(
        "doubt-before-prompt",
        '!call mail {"to": "ann"}',
        prompt=("a", "b"),
        options="careful",
        drive=f"{DRIVES}:cancel_and_prompt",
        tags=R,
        stop="waiting",
        check=("ran_once", "one_question"),
    ),
    task(
        "doubt-asked",
        '!call mail {"to": "ann"}',
        options="careful",
        drive=f"{DRIVES}:interrupt",
        tags=R,
        stop="waiting",
        check=("ran_once", "one_question"),
    ),
    task(
        "doubt-settled",
        '!call mail {"to": "ann"}',
        {"expect": "mailed by hand", "say": "Mailed."},
        options="careful",
        drive=f"{DRIVES}:settle_doubt",
        tags=R,
        equals="Mailed.",
        check="ran_once",
    ),
    task(
        "forgotten",
        '!call look {"what": "sea"}',
        "One.",
        "Two.",
        prompt=("a", "b"),
        drive=f"{DRIVES}:forget",
        refusals=True,
        tags=R,
        equals="Two.",
        check="whole_conversation_was_sent",
    ),
]
