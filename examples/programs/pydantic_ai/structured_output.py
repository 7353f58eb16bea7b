from dataclasses import dataclass

from pydantic_ai import Agent


@dataclass
class City:
    name: str
    inhabitants: int


agent = Agent("openai:gpt-6.1-sol", output_type=City)
print(agent.run_sync("Which is the largest city of Japan?").output)
