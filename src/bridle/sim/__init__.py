"""A provider in this process: the wire of a real one, its rules, and a small rule-based mind behind it.

It stands where a provider stands, so a run against it travels the whole road:
assemble, encode, check, answer, decode, act.  Everything it knows of one wire
family is that family's codec (`providers/`) and its table of rules
(`rules_<family>.py`); the rest never asks which family it is speaking.

    app.py         the heart: what a request means to its family, and what is wrong with it
    simulator.py   everything that has state; `answer` is the application behind `sim:`
    server.py      the same on a port of this machine
    rules.py       what a rule is; `rules_<family>.py` the rules with the providers' own words
    profiles.py    which of a family's rules a server has
    side.py        what is offered beside the main endpoint; `side_<family>.py` by family
    keeping.py     what a provider keeps between two requests
    brain.py       what to reply: directives first, then the skills, then a plain sentence
    brains.py      other minds: scripted, recorded, echo, adversarial
    turn.py        what a brain decides: a reply, its delivery, its troubles
    directives.py  replies scripted from inside the prompt; `scriptfile.py` from a file
    endings.py     how a scripted reply ends
    faults.py      what can be made to go wrong; `incidents.py` does it
    scene.py       what a brain sees of a request
    skills/        arithmetic, weather, files, tools asked for by name
    instance.py    values that fit a JSON schema
    tokens.py      how many tokens that was, by estimate

Only `simulator.py` remembers anything.  Dice follow the seed and the conversation, so the
same requests to a new simulator get the same answers, byte for byte.
"""
