"""Contracts of the edges: one protocol per dependency, stated as must, may and never."""
