"""Derives the trace of a session from its records.

Pure: no exporter and no clock. watchers/otel sends spans; run/context/telemetry.py connects the two.
"""
