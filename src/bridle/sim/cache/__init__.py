"""Prompt layout, the simulated prompt cache, token estimates and cache reports.

Does not belong here: how one wire spells a prompt.
"""
