"""The offline model: it keeps what it is told to remember, and answers with the best sentence that was found."""

import json
import re

from bridle import Reply
from bridle.testing import ConversationFacts, call_reply
from passages import split_words

CHUNK = re.compile(
    r'<chunk id="[^"]*" source="(?P<file>[^":]+):(?P<line>\d+)">\n(?P<text>.*?)\n</chunk>', re.DOTALL
)
NOTE = re.compile(r'^(t\d+): (".*")$', re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
REMEMBER = re.compile(r"remember(?: that)?:? (.+)", re.IGNORECASE)
COMMON = frozenset(
    split_words("the a an is are of to in on at for and or what when where how does do it i my there")
)


def read_and_answer(facts: ConversationFacts) -> str | Reply:
    question = CHUNK.sub("", facts.prompt).splitlines()[-1]
    if (told := REMEMBER.search(question)) and not facts.exchanges:
        return call_reply(("remember", {"note": told[1]}))
    if told:
        return json.dumps({"text": "I will remember that.", "citations": [], "notes": []})
    notes = {id_: json.loads(text) for id_, text in NOTE.findall(facts.system)}
    words = set(split_words(question)) - COMMON
    known = [id_ for id_, text in notes.items() if words & set(split_words(text)) or "for me" in question]
    words |= {word for id_ in known for word in split_words(notes[id_])} - COMMON
    sentences = [
        (len(words & set(split_words(sentence))), found["file"], int(found["line"]), sentence)
        for found in CHUNK.finditer(facts.prompt)
        for sentence in SENTENCE_END.split(found["text"])
    ]
    best = sorted((each for each in sentences if each[0] > 0), key=lambda each: -each[0])[:2]
    if not best:
        return json.dumps({"text": "The files do not say.", "citations": [], "notes": []})
    citations = [{"file": file, "line": line, "quote": sentence} for _, file, line, sentence in best]
    return json.dumps({"text": " ".join(each[3] for each in best), "citations": citations, "notes": known})
