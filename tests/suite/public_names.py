"""The modules of public names: programs of users, pages and examples import nothing else."""

MODULES = (
    "errors", "evals", "events", "hooks", "hosted", "mcp", "memory", "messages", "serve", "sessions", "testing", "toolkit",
    "tools", "watchers",
)  # fmt: skip
"""Modules of public names, besides `bridle` itself."""
PUBLIC = {
    "bridle",
    *(f"bridle.{name}" for name in MODULES),
    "bridle.engines.temporal",
    "bridle.sandbox",
    "bridle.stores",
}
