"""The `bridle` command.  Thin: parse, call, print."""
