"""Reserves the worst case of a model call in every budget it draws from, and settles it afterwards.

Does not belong here: what a call may cost (core.budget).
"""
