"""What the two OpenAI wires share. It has no codec of its own."""
