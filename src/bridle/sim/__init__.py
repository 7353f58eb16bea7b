"""A provider in this process: the wire of a real one, its rules, and a small rule-based mind behind it.

It stands where a provider stands, so a run against it travels the whole road:
assemble, encode, check, answer, decode, act.  Everything it knows of one wire
family is that family's codec (`providers/`) and its table of rules
(`rules_<family>.py`); the rest never asks which family it is speaking.

    app.py         one request in, one answer out
    rules.py       what a rule is; `rules_<family>.py` the rules with the providers' own words
    brain.py       what to reply: directives first, then the skills, then a plain sentence
    directives.py  replies scripted from inside the prompt
    scene.py       what a brain sees of a request
    skills/        arithmetic, weather, files, tools asked for by name
    instance.py    values that fit a JSON schema
    tokens.py      how many tokens that was, by estimate

Nothing here keeps state, reads a clock or throws dice: the same request gets the
same answer, byte for byte.
"""
