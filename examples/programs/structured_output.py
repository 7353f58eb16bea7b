from dataclasses import dataclass

from bridle import Agent


@dataclass
class City:
    name: str
    inhabitants: int


agent = Agent("openai:gpt-6.1-sol", output=City)
print(agent.run_sync("Which is the largest city of Japan?").output)
