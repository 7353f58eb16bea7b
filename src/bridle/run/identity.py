"""Names for new sessions: a date one can sort by and enough chance that no two are alike."""

import secrets
from datetime import UTC, datetime

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
LENGTH = 8


def new_session(now: float) -> str:
    day = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d")
    return f"{day}-{''.join(secrets.choice(ALPHABET) for _ in range(LENGTH))}"
