"""Builds what a model is sent: the view of the transcript, the media and options it accepts, the token
estimate, the request.

Does not belong here: making a conversation shorter (compaction), prompt caching (cache).
"""
