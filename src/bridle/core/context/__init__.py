"""Builds what is sent to a model: view, media, options, token estimate, and the request itself.

Does not belong here: shortening a conversation (compaction), prompt caching (cache).
"""
