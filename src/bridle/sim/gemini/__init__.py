"""The simulated Gemini provider: rules, prompt layout, signatures, extra endpoints."""
