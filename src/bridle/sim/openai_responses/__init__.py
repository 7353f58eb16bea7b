"""The simulated OpenAI Responses provider: rules, prompt layout, signatures, extra endpoints."""
