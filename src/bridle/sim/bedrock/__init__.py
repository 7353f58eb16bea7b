"""The simulated Bedrock provider: rules, prompt layout, signatures, extra endpoints."""
