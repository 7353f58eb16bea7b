"""Code shared by the two OpenAI wires; this package has no codec."""
