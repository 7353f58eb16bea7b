"""Messages in the user role that an agent harness adds to a conversation: they are no prompt, and end no script.

The texts are those of core. Requests carry no mark of who wrote a message.
"""

import re

from bridle.core.budget.limits import WRAP_UP_NOTICE
from bridle.core.calls.compensation import NOT_UNDONE_NOTICE, UNCERTAIN_NOTICE, UNDONE_NOTICE
from bridle.core.calls.orphaned import RECORDS_LOST
from bridle.core.calls.pending import REPETITION_LEAD
from bridle.core.evaluate_reply import (
    ANSWER_UNCHECKED,
    ANSWER_UNUSABLE,
    CALL_MALFORMED,
    CALL_MISSING,
    CONTINUE_AFTER_COMPACTION,
    CUT_OFF,
    NO_WORDS,
    OUT_OF_ROOM,
    REPLY_EMPTY,
)
from bridle.core.hooks import REPLY_REJECTED
from bridle.core.loop import CONTINUE_NOTICE

NOTICES = (
    ANSWER_UNUSABLE, ANSWER_UNCHECKED, NO_WORDS, REPLY_EMPTY, CONTINUE_AFTER_COMPACTION, CALL_MALFORMED, CALL_MISSING,
    CUT_OFF, OUT_OF_ROOM, REPLY_REJECTED, CONTINUE_NOTICE, RECORDS_LOST, REPETITION_LEAD, WRAP_UP_NOTICE, UNDONE_NOTICE,
    NOT_UNDONE_NOTICE, UNCERTAIN_NOTICE,
)  # fmt: skip
_VARIABLE = re.compile(r"\\{\w+\\}")
"""A variable part of a notice, escaped."""
NOTICE = re.compile(
    r"\s*(?:" + "|".join(_VARIABLE.sub(".+?", re.escape(notice)) for notice in NOTICES) + ")", re.DOTALL
)


def is_harness_notice(text: str) -> bool:
    return NOTICE.match(text) is not None
