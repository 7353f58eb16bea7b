"""Bridle."""
