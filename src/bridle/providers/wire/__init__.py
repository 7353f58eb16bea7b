"""What every wire family shares: byte streams, JSON, encoded history, the decoder base, error texts.

Does not belong here: anything that only one family needs.
"""
