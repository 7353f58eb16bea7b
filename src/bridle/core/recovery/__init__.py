"""Decides what follows a failure: retries and waits, fallback models, circuit breaker, log repair.

Does not belong here: how a provider spells its errors (providers).
"""
