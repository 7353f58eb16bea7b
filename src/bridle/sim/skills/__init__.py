"""What the rule-based brain can do, one file per skill.

A skill looks at a scene and makes a move, or returns None when this is not its
business.  It finds the tools it needs by what they take and how they are described,
not by agreed names, so it works with tools it has never met.  A result that is an
error is told, never retried: a brain that tries again and again is a loop.
"""
