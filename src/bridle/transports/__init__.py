"""What carries bytes: over HTTP, to an application in this process, or from a recording.

One file per way.  Nothing is imported here, so that a way nobody takes costs nothing.
"""
