"""Decides what follows a failure: retry policy and waits, fallback, circuit breaker, repair of damaged logs.

Does not belong here: how a provider spells its errors (providers).
"""
