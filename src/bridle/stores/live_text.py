"""Removes the text of a reply that is shown to other processes."""

import logging

from bridle.ports.store import LiveStore
from bridle.values.errors import BridleError
from bridle.values.text import escape_text

LOG = logging.getLogger("bridle")


async def remove_live_text(store: LiveStore, session: str, level: int = logging.WARNING) -> None:
    """Remove it. A failure is logged and not raised: the work before it is done, and must be reported as done."""
    try:
        await store.publish_live(session, b"")
    except (BridleError, OSError) as error:
        text = f"session {session}: the text of a reply that other processes see was not removed: {error}"
        LOG.log(level, "%s", escape_text(text))
