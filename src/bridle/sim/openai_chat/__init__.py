"""The simulated OpenAI Chat provider and compatible servers: rules, profiles, prompt layout."""
