"""The inspector shows and sends arguments exactly as they are written: numbers, repeated names, hidden characters."""

import json
import random
import shutil
import subprocess
import unicodedata
from decimal import Decimal
from pathlib import Path

import pytest

import bridle.serve.inspector
from bridle import Agent, tool
from bridle.core.calls.argument_changes import complete_arguments, list_changes
from bridle.run.calls.approval import list_pending_approvals
from bridle.run.recovery.session_log import fold_records
from bridle.stores.memory import MemoryStore
from bridle.values.request import ToolSpec
from bridle.values.text import escape_text
from tests.serve.browser import MISSING, find_browser, open_browser
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop

FOLDER = Path(bridle.serve.inspector.__file__).parent
NUMBERS = [
    "1234567890123456789", "9007199254740993", "-9007199254740993", "18446744073709551616", "0.10", "1.0", "-0", "-0.0",
    "1e400", "1E+2", "1e-400", "0.1000000000000000055511151231257827", "123456789012345678901234567890", "1.10e3", "100",
]  # fmt: skip
SCRIPT = """
import { indentJson, readMembers, joinMembers } from "FOLDER/json.js";
let text = "";
for await (const piece of process.stdin) text += piece;
const found = JSON.parse(text).map((each) => ({
  indented: indentJson(each), again: indentJson(indentJson(each) ?? "") , members: readMembers(each),
  joined: readMembers(each) && joinMembers(readMembers(each)),
}));
process.stdout.write(JSON.stringify(found));
"""


def run_script(texts):
    script = SCRIPT.replace("FOLDER", FOLDER.as_uri())
    words = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(words, input=json.dumps(texts), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def parse_exactly(text):
    """The value with numbers as their text, and objects as lists of members."""
    return json.loads(
        text, parse_int=Number, parse_float=Number, object_pairs_hook=lambda pairs: ["object", *pairs]
    )


class Number(str):
    __slots__ = ()


def make_value(chance, depth=0):
    kind = chance.randrange(8 if depth < 4 else 4)
    if kind == 0:
        return chance.choice(NUMBERS)
    if kind == 1:
        return json.dumps(
            chance.choice(["", "a:b,c", "[{}]", '"', "\\", "\u202e", "é", "\n", "😀", "\u2028"])
        )
    if kind == 2:
        return chance.choice(["true", "false", "null"])
    if kind == 3:
        return str(chance.randrange(-(2**70), 2**70))
    space = chance.choice(["", " ", "\n  "])
    inner = [make_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 6:
        return f"[{space}{f',{space}'.join(inner)}{space}]"
    named = (f'"{chance.choice("abc")}"{space}:{space}{each}' for each in inner)
    return f"{{{space}{f',{space}'.join(named)}{space}}}"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_generated_json_keeps_every_token():
    chance = random.Random(13)
    texts = [make_value(chance) for _ in range(2_000)]
    texts += [f'{{"account": {number}, "amount": 1}}' for number in NUMBERS]
    for text, found in zip(texts, run_script(texts), strict=True):
        assert parse_exactly(found["indented"]) == parse_exactly(text)
        assert found["again"] == found["indented"]
        if text.startswith("{"):
            pairs = parse_exactly(text)[1:]
            assert [(each["name"], parse_exactly(each["raw"])) for each in found["members"]] == pairs
            assert parse_exactly(found["joined"]) == parse_exactly(text)
        else:
            assert found["members"] is None


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_text_that_is_not_json_is_left_alone():
    for found in run_script(["", "{", '{"a" 1}', "nope", '{"a":1}}', "{'a':1}", '"\n"']):
        assert (found["indented"], found["members"]) == (None, None)


@pytest.mark.parametrize(
    "number", [each for each in NUMBERS if each != "1e400"]
)  # no tool is called with infinity
def test_the_arguments_of_a_question_have_the_numbers_of_the_model(number):
    schema = '{"type": "object", "properties": {"a": {}, "memo": {"type": "string", "default": "none"}}}'
    spec = ToolSpec(name="pay", parameters=schema)
    shown = complete_arguments(spec, f'{{"a": [{number}],\n "b": "\\u00e9"}}')
    assert shown == f'{{"a": [{number}], "b": "é", "memo": "none"}}'
    assert complete_arguments(None, f'{{"a":{number}}}') == f'{{"a": {number}}}'


def test_numbers_stay_exact_beside_defaults_inside_values_and_repeated_names():
    """A call with a repeated name runs with the last value, so that is shown."""
    inner = {"type": "object", "properties": {"memo": {"type": "string", "default": "none"}}}
    schema = {"type": "object", "properties": {"amount": {"type": "number"}, "more": inner}}
    spec = ToolSpec(name="pay", parameters=json.dumps(schema))
    asked = '{"amount": 1, "more": {}, "amount": 12345678901234567.89}'
    assert complete_arguments(spec, asked) == '{"amount": 12345678901234567.89, "more": {"memo": "none"}}'
    assert list_changes(
        '{"a": 12345678901234567.89, "b": 1.10}', '{"a": 12345678901234567.90, "b": 1.1}'
    ) == ["a: 12345678901234567.89 → 12345678901234567.90"]


ESCAPES = """
globalThis.document = { addEventListener() {} };
const { visibleJson } = await import("FOLDER/dom.js");
let text = "";
for await (const piece of process.stdin) text += piece;
process.stdout.write(JSON.stringify(JSON.parse(text).map((each) => visibleJson(each))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_inspector_escapes_what_the_terminal_escapes():
    letters = [chr(each) for each in (*range(0xA0, 0xD800), *range(0xE000, 0xE010), *range(0xF000, 0x10000))]
    letters += [chr(each) for each in (*range(0x1D150, 0x1D180), *range(0xE0000, 0xE0200), 0x1BCA0, 0xF0000)]
    texts = [f'"x{letter}y"' for letter in letters]
    script = ESCAPES.replace("FOLDER", FOLDER.as_uri())
    words = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(words, input=json.dumps(texts), capture_output=True, text=True, check=True)
    for text, shown in zip(texts, json.loads(done.stdout), strict=True):
        # A newer Unicode may know more characters without a form.
        assert shown == escape_text(text, exact=True) or unicodedata.category(text[2]) == "Cn"


ACCOUNT = "1234567890123456789"


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason=MISSING)
@in_loop
async def test_after_editing_the_amount_the_same_account_is_paid():
    paid = []

    @tool(effect="write", approve=True)
    def pay(account: int, amount: float, memo: str = "") -> str:
        """Pay."""
        paid.append((account, amount, memo))
        return f"paid {amount} to {account}"

    memo = "to\u00a0Bob\u202ereversed\u200b"
    asked = json.dumps({"account": int(ACCOUNT), "amount": 10, "memo": memo}).replace("10,", "10.10,")
    store = MemoryStore()
    agents = {"bank": Agent("sim:", name="bank", tools=[pay])}
    async with serve_agents(agents, store) as serving, open_browser() as browser:
        prompt = f"!call pay {asked}\n!then\n!say ok"
        await serving.host.prompt(serving.host.agents["bank"], prompt, "s", new=True)
        page = await browser.new_page()
        await page.visit(f"{serving.url}/#/session/s/approvals")
        await page.wait_for(".card", "May this call run?")
        shown = await page.evaluate("document.querySelector('.card textarea').value")
        assert f'"account": {ACCOUNT}' in shown
        assert '"amount": 10.10' in shown
        assert "\\u00a0Bob\\u202ereversed\\u200b" in shown
        await page.fill(".card textarea", shown.replace("10.10", "45.50"))
        await page.click(".card button.primary", "Approve with these arguments")
        await page.wait_for(".answered", "approve with other arguments")
        await page.visit(f"{serving.url}/#/session/s/transcript")
        await page.wait_for("details.call summary", f"account={ACCOUNT}")
        await page.wait_for(".notice.end", "done")
        state = (await fold_records(await store.read("s"))).state
        assert not list_pending_approvals("s", state)
    assert paid == [(int(ACCOUNT), 45.5, memo)]
    assert Decimal("45.50") == Decimal(str(paid[0][1]))
