"""Rules, prompt layout and endpoints that the two simulated OpenAI wires share."""
