"""Names for new sessions: a date one can sort by and enough chance that no two are alike."""

import re
import secrets
from datetime import UTC, datetime

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
LENGTH = 8


GENERATED = re.compile(rf"\d{{8}}-[{ALPHABET}]{{{LENGTH}}}")


def is_generated(session: str) -> bool:
    """Whether an id has the form of those made here: nobody chooses such a name, so it must exist."""
    return GENERATED.fullmatch(session) is not None


def new_session(now: float) -> str:
    day = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d")
    return f"{day}-{''.join(secrets.choice(ALPHABET) for _ in range(LENGTH))}"
