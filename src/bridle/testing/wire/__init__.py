"""Compares codecs with recorded traffic and with reference decoders that share no code with them.

Runtime code does not import this package.
"""
