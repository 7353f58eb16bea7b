"""The `bridle` command.  Thin: parse, call, print."""

from importlib import import_module


def start() -> int:
    """Run the command; Ctrl-C while its modules are loaded ends it like Ctrl-C later."""
    try:
        main = import_module("bridle.cli.main").main
    except KeyboardInterrupt:
        return 130
    code: int = main()
    return code
