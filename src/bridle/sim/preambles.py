"""Blocks that clients put around a prompt: reminders, facts about the machine, instructions of a project.

The responder answers the person.  A model would read these blocks too, but they are not what was asked, and
scripts in them are not meant to be played.
"""

import re

TAGS = (
    "system-reminder", "system_reminder", "environment_context", "environment_details", "env",
    "user_instructions", "INSTRUCTIONS", "session_context", "skills_instructions", "apps_instructions",
    "plugins_instructions", "permissions instructions", "collaboration_mode", "available_skills",
    "local-command-caveat", "local-command-stdout", "command-name", "command-message", "command-args",
)  # fmt: skip
"""Blocks that coding agents add to a prompt, or send as a message of their own."""
_NAMES = "|".join(map(re.escape, TAGS))
BLOCK = re.compile(rf"(?ms)(?:^#[^\n]*\binstructions for\b[^\n]*\n\s*)?<({_NAMES})>.*?</\1>\s*")
"""A block, with the heading that some put before it."""


def strip_preambles(text: str) -> str:
    """The text without the blocks that clients add; the very same when there are none."""
    return BLOCK.sub("", text) if "</" in text else text
