from pydantic_ai import Agent, ModelRetry

agent = Agent("openai:gpt-6.1-sol")


@agent.output_validator
def check_answer(answer: str) -> str:
    if "391" not in answer:
        raise ModelRetry("that is not the product; work it out again")
    return answer


print(agent.run_sync("What is 17 * 23?").output)
