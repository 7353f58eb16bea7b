from bridle import Agent
from bridle.watchers import NotebookView

agent = Agent("openai:gpt-6.1-sol", watchers=[NotebookView()])
agent.run_sync("What is 17 * 23?")
