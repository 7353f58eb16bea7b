"""One file per command of `bridle`, each with `add_arguments(parser)` and `execute(options)`.

Does not belong here: helpers that another command needs.
"""
