"""Replays recorded runs without a network, and shows the requests that they sent.

Decisions are in core/lineage/replay.py; here are the store, the codecs and the agent to compare with.
"""
