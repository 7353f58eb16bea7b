"""Commands for stored sessions: verify, prune, copy, export, import, redact and audit them."""
