"""Sends spans and metrics to an OpenTelemetry receiver, over OTLP/HTTP.

    settings    `Telemetry`: what is exported, how much of it, and where to
    endpoint    the OTEL_* environment variables
    exporter    the queue, and the thread that sends it
    sampling    which traces are sent
    metrics     tokens, costs and durations, summed in this process
    encode      spans and metrics as OTLP messages

core/tracing makes the spans. Nothing here can delay or end a run: the queue is bounded, and a failure is a warning.
"""
