"""Random lives whose agents are kept, to replay their logs."""

from bridle.values.errors import MisuseError
from tests.campaigns.lives import COMMON_MODELS, Life


async def live(seed):
    life = Life(seed)
    make_agent, life.agents = life.drawn_agent, []

    def note_agent(*given, **named):
        life.agents.append(make_agent(*given, **named))
        return life.agents[-1]

    life.drawn_agent = note_agent
    for number in range(1 + life.draws.number(4)):
        await life.turn(number)
        await life.between()
    life.provider.fail()
    for model in COMMON_MODELS[:3]:
        script = '!call look {"at": "end"}\n!then\n!say well'
        try:
            await life.agent(model, last=True).run(script, session=life.session, tenant=life.tenant)
        except MisuseError as error:
            assert "output" in str(error) or "tool" in str(error), error
    return life
