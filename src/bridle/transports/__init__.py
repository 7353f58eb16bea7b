"""Transports carry bytes: over HTTP, to an application in this process, or from a recording.

One module per transport. This package imports none of them, so an unused transport costs nothing to import.
"""
