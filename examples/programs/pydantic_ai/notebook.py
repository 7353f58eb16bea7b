from IPython.display import Markdown, display
from pydantic_ai import Agent

agent = Agent("openai:gpt-6.1-sol")
output = display(Markdown(""), display_id=True)
async with agent.run_stream("What is 17 * 23?") as response:
    async for text in response.stream_text():
        output.update(Markdown(text))
