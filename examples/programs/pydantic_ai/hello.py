from pydantic_ai import Agent

agent = Agent("openai:gpt-6.1-sol", instructions="Be brief.")
print(agent.run_sync("What is 17 * 23?").output)
