"""Commands that work on stored sessions as a whole: export, import, redact, audit."""
