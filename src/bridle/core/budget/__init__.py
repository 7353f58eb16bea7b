"""Computes spending, remaining limits, worst cases, shared budgets, and the cost ledger.

Does not belong here: storing reservations (run.budget).
"""
