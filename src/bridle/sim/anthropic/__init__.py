"""The simulated Anthropic provider: rules, prompt layout, signatures, extra endpoints."""
