"""Forms in which the items of a session reach a front end: one adapter per protocol.

An adapter turns batches of feed items into bytes of a server-sent event stream. It decides nothing and keeps only what
its protocol needs, such as ids of open messages.
"""
