"""Immutable values shared by every layer: messages, requests, events, settings, results.

Depends on the standard library and msgspec only. Values are tagged and compared by content. Code that decides
or performs I/O does not belong here.
"""
