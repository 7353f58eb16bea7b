"""Rows of docs/recovery.md about tool results, stop reasons and store errors.

The loop does not read them: a test compares its behaviour with each row.
"""

from bridle.core.recovery.failure_policy import RecoveryRow
from bridle.values.errors import Conflict, Corrupt, StoreError, Unusable
from bridle.values.message import Outcome, Stop

OUTCOME_POLICY: dict[Outcome, RecoveryRow] = {
    "ok": RecoveryRow(action="tell", description="The result", example="`24 °C, clear`"),
    "error": RecoveryRow(
        action="tell", description="The exception message as the result", example="`ZeroDivisionError: …`"
    ),
    "retry": RecoveryRow(
        action="tell",
        description="The message of `ModelRetry`; after 4 such replies in a row to one tool the run ends",
        example='`raise ModelRetry("no such customer; search first")`',
    ),
    "invalid": RecoveryRow(
        action="tell",
        description="The problem with the call, which was not run",
        example="an unknown name; truncated arguments, or arguments that violate the schema",
    ),
    "denied": RecoveryRow(
        action="tell", description="The call was denied and not run", example="a rule of the policy"
    ),
    "timeout": RecoveryRow(
        action="tell", description="The tool exceeded its time limit", example="`@tool(timeout=5)`"
    ),
    "cancelled": RecoveryRow(
        action="tell",
        description="The run ended first (reported when it is resumed)",
        example="Ctrl-C before the call started",
    ),
    "unknown": RecoveryRow(
        action="tell",
        description="The call may have taken effect; reported if the tool's `on_unknown` does not resolve it",
        example="the process crashed, or the run was cancelled, between the start of a call and its receipt",
    ),
}

STOP_POLICY: dict[Stop, RecoveryRow] = {
    Stop.DONE: RecoveryRow(
        action="stop",
        description="The answer; the model is asked again if it is empty or does not match the requested type",
        example="`end_turn`, `stop`, `STOP`",
    ),
    Stop.TOOLS: RecoveryRow(
        action="tell",
        description="The results; text without a call is an answer, and a reply with neither is continued",
        example="`tool_use`, `tool_calls`",
    ),
    Stop.LENGTH: RecoveryRow(
        action="tell",
        description="The model continues with the maximum output size; the pieces are joined",
        example="`max_tokens`, `length`, `MAX_TOKENS`",
    ),
    Stop.PAUSED: RecoveryRow(
        action="retry",
        description="The reply is sent back unchanged, so that the provider continues",
        example="`pause_turn`",
    ),
    Stop.REFUSED: RecoveryRow(
        action="stop",
        description="The run ends as `refused`; calls of a refused reply are not run",
        example="`refusal`",
    ),
    Stop.FILTERED: RecoveryRow(
        action="stop", description="The run ends as `refused`", example="`content_filter`, `SAFETY`"
    ),
    Stop.CONTEXT: RecoveryRow(
        action="tell",
        description="The conversation is compacted and the model continues; if that is not possible, the run ends as"
        " `context`",
        example="`model_context_window_exceeded`",
    ),
    Stop.MALFORMED: RecoveryRow(
        action="tell", description="The model is asked again", example="`MALFORMED_FUNCTION_CALL`"
    ),
    Stop.OTHER: RecoveryRow(
        action="stop",
        description="Treated as `done`: an unknown stop reason is judged by the content of the reply",
        example="a stop reason introduced after this version",
    ),
}

STORE_ERROR_POLICY: dict[type[StoreError], RecoveryRow] = {
    Conflict: RecoveryRow(
        action="stop",
        description="Raised: another process drives the session; `resume` reads what it wrote",
        example="two processes on one session",
    ),
    Corrupt: RecoveryRow(
        action="stop",
        description="Raised: nothing is appended to an inconsistent log",
        example="a record whose hash does not follow from the one before",
    ),
    Unusable: RecoveryRow(
        action="stop",
        description="Raised: the write may have succeeded; only reading the log again shows it",
        example="the disk is full; the file is read-only",
    ),
}
"""A write that the store did not accept has not happened, so it cannot be recorded: these are exceptions."""
