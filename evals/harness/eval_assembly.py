"""What the next request contains, and in which order."""

from harness_kit import task

A = ("assembly",)
PLACES = tuple(
    f'!call recite {{"lines": {60 + n}}}\n!then\n!say place {n} is fine\nlook at place {n}; {"words " * 120}'
    for n in range(12)
)

TASKS = [
    task(
        "history",
        "first answer",
        "second answer",
        "third answer",
        prompt=("first prompt", "second prompt", "third prompt"),
        tags=A,
        equals="third answer",
        check="history_is_sent",
    ),
    task("instructions", "Aye.", options="instructed", tags=A, check="instructions_are_the_system_prompt"),
    task(
        "tools-offered",
        '!call look {"what": "sea"}',
        "Aye.",
        tags=A,
        check=("all_tools_are_offered", "tools_are_sorted_alike"),
    ),
    task(
        "typed-answer",
        '{"n": 3}',
        options="typed",
        tags=A,
        output={"n": 3},
        check="type_of_the_answer_is_sent",
    ),
    task("wrong-typed-answer", '{"n": "three"}', '{"n": 3}', options="typed", tags=A, output={"n": 3}),
    task(
        "reasoning",
        '!think Hm.\n!call look {"what": "sea"}',
        "!think So.\n!say Three.",
        options="thinks",
        tags=A,
        contains="Three.",
        check="reasoning_is_sent_back",
    ),
    task(
        "retrieved",
        "Green.",
        prompt="Which color has the sky?",
        options="retrieves",
        tags=A,
        check=("chunk_precedes_the_prompt", "chunk_is_not_in_the_head", "instructions_are_the_system_prompt"),
    ),
    task(
        "notes",
        "Ida.",
        options="remembers",
        drive="note_first",
        prompt="Who is the captain?",
        tags=A,
        check="note_is_sent",
    ),
    task(
        "long-conversation",
        prompt=PLACES,
        options="small window",
        tags=A,
        contains="place 11 is fine",
        check=("was_compacted", "newest_message_survived"),
    ),
    task(
        "searched-tools",
        '!call search_tools {"query": "sweep the room"}',
        "!call sweep",
        {"expect": "swept", "say": "Clean."},
        options="catalogue",
        tags=A,
        called=("sweep",),
        equals="Clean.",
        check="hidden_tool_was_revealed",
    ),
    task("empty-result", '!call recite {"lines": 0}', "Nothing.", tags=A, equals="Nothing."),
    task(
        "unicode",
        '!call look {"what": "café 🙂 \\u4e2d"}',
        {"expect": "café 🙂 中", "say": "Ça va 🙂"},
        prompt="Où est le café 🙂?",
        tags=A,
        contains="🙂",
    ),
]
