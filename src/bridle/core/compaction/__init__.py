"""Decides when, what and how far a conversation is shortened, and asks for summaries.

Does not belong here: applying the changes to the view (context.view).
"""
