"""Computes what was spent, what may still be spent, the worst case of the next call, shared budgets, and the
ledger.

Does not belong here: storing reservations (run.budget).
"""
