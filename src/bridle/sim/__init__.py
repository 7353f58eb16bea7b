"""A simulated provider: real wire formats, the providers' own rules, and a rule-based model.

It takes the place of a provider, so a run against it exercises the whole path: assemble, encode,
check, answer, decode, execute. Only the family folders know a wire; shared modules read the
attributes of `SimulatedFamily` and never branch on a family's name.

    app            decodes a request for its family and checks it; keeps no state
    simulator      everything with state: refusals, caches, stored objects; serves `sim:` models
    server         the same over HTTP on the loopback address
    families       the table of families; `family` is the value each of them defines
    endpoints      endpoints beside the main one, such as lists of models and token counting

    rules/         the rule engine, the checks that families share, and server profiles
    responder/     decides the reply: scripts, skills, recordings, sample values
    faults/        failures that can be injected into answers
    cache/         prompt caching and token counts
    anthropic/ bedrock/ gemini/ openai_chat/ openai_responses/
                   one family each: rules, prompt layout, signatures, cache report, endpoints
    openai/        shared by the two OpenAI families

Random draws depend on the seed and the conversation, so a new simulator gives the same answers to
the same requests, byte for byte. Conformance kits and test helpers belong in `bridle.testing`.
"""
