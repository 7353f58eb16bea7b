"""Serves agents as models behind the providers' own wires, so that any client of those can use them unmodified.

    conversation.py   a request split into what is known and what is new
    client_view.py    the log of a session as its client saw it
    sessions.py       the session that a request continues
    turn.py           the run that answers a request
    reply.py          its events as a reply, whole or as a stream
    streaming.py      the bytes of a stream, and clients that disconnect
    endpoints.py      the routes

Belongs here: what all wires share. The bytes and paths of a wire belong in providers/<family>/ (serving.py there).
"""
