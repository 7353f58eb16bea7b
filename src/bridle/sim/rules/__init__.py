"""Defines what a rule is, how requests are checked, and field checks that are rows of a table.

Does not belong here: any provider's own rules.
"""
