"""Keeps prompts cacheable and explains cache misses.

Covers breakpoints, cache keys, the prefix check, provider-side state, diagnosis and reports. Does not belong
here: prices and limits (budget).
"""
