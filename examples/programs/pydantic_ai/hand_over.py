from pydantic_ai import Agent


def book(seat: int) -> str:
    """Book a seat."""
    return f"booked seat {seat}"


def transfer_to_booking(reason: str) -> str:
    """Hand the conversation over to booking."""
    return reason


prompt = "Use transfer_to_booking, then call book for seat 4."
booking = Agent("openai:gpt-6.1-sol", tools=[book])
agent = Agent("openai:gpt-6.1-sol", output_type=[transfer_to_booking, str])
first = agent.run_sync(prompt)
print(booking.run_sync(prompt, usage=first.usage).output)
