"""Keeps prompts cacheable and explains cache misses: breakpoints, key, prefix guard, state kept by the
provider, diagnosis, report.

Does not belong here: prices and limits (budget).
"""
