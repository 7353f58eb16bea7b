from bridle import Agent, Handover


def book(seat: int) -> str:
    """Book a seat."""
    return f"booked seat {seat}"


booking = Agent("openai:gpt-6.1-sol", tools=[book], name="booking")
agent = Agent("openai:gpt-6.1-sol", handover=[Handover(agent=booking, sees="prompt")])
print(agent.run_sync("Use transfer_to_booking, then call book for seat 4.").text)
