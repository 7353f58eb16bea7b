from bridle import Agent, NotebookView

agent = Agent("openai:gpt-6.1-sol", watchers=[NotebookView()])
agent.run_sync("What is 17 * 23?")
