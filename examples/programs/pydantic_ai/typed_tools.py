from pydantic_ai import Agent


def get_weather(city: str, days: int = 1) -> str:
    """Weather in a city, for the next days."""
    return {"Tokyo": "24 °C, clear", "New York": "17 °C, rain"}[city]


agent = Agent("openai:gpt-6.1-sol", tools=[get_weather])
print(agent.run_sync("Is it warmer in Tokyo or New York?").output)
