from bridle import Agent, ModelRetry


def check_answer(answer: str) -> None:
    if "391" not in answer:
        raise ModelRetry("that is not the product; work it out again")


agent = Agent("openai:gpt-6.1-sol", validate=check_answer)
print(agent.run_sync("What is 17 * 23?").text)
