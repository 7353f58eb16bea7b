"""An agent that searches the web with its provider's own tool, within a budget.

Runs without a key: the simulator searches a page that does not exist, and bills it.
"""

from bridle import Agent, Budget, hosted

agent = Agent("sim:openai/gpt-6.1-sol", tools=[hosted.web_search(max_uses=3)], budget=Budget(usd=0.10))

if __name__ == "__main__":
    result = agent.run_sync("Search the web for the newest Python.")
    print(result.text)
    print(f"{result.usage.searches} search, ${result.cost:.4f}")
