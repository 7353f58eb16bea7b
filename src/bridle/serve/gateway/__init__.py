"""Gateway: the wires of `serve.wires` in front of providers, with keys, budgets, fallback, hooks and the log.

It is the same loop with an agent that has no tools and no instructions of its own: a client speaks one wire, the
provider another. Belongs here: the gateway's file, its keys and its models. Not here: anything about a wire.
"""
