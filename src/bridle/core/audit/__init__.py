"""The audit report of a session: who decided what, when and under which policy. A pure fold of its log."""
