"""The simulated Gemini provider: its rules with its own messages, prompt layout, signatures, extra endpoints."""
