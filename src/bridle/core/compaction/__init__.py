"""Decides when, what and how far a conversation is compacted, and requests summaries.

Does not belong here: applying the changes to the view (context.view).
"""
