"""The store in memory keeps settings compressed, and reads the bytes that were written."""

import asyncio
import tracemalloc

import pytest
from msgspec.structs import replace

from bridle.stores.memory import MemoryStore
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.values.calls import PermissionRule, Policy
from bridle.values.events import Configured
from bridle.values.settings import Settings


def test_settings_are_read_with_the_bytes_they_were_written_with():
    async def main():
        store = MemoryStore()
        settings = Settings(instructions="Be brief.")
        first, second = make_records(Configured(settings=settings, session="a"), make_prompt("Go."))
        # As another version may have written it: a field that is not known here.
        other = replace(first, data=first.data.replace(b"{", b'{"later":1,', 1))
        await store.append("a", 0, [first, second])
        await store.append("b", 0, [other])
        await store.fork("a", 1, "c")
        assert [each.data for each in await store.read("a")] == [first.data, second.data]
        assert await store.read("b") == (other,)
        assert await store.read("c") == (first,)
        assert await store.read("a", 1) == (second,)

    asyncio.run(main())


@pytest.mark.parametrize("session", ["", "a", ',"session":', 'x","session":"é\n'])
@pytest.mark.parametrize("instructions", ["Be brief.", ',"session":', ""])
@pytest.mark.parametrize("rest", [{}, {"handed_over_to": ',"session":'}, {"omitted_extras": ("a", "b")}])
def test_the_bytes_do_not_depend_on_what_the_settings_and_the_session_say(session, instructions, rest):
    async def main():
        store = MemoryStore()
        event = Configured(settings=Settings(instructions=instructions), session=session, **rest)
        (record,) = make_records(event)
        for name in ("first", "second"):
            await store.append(name, 0, [record])
            assert await store.read(name) == (record,)

    asyncio.run(main())


def test_settings_take_little_memory():
    async def append(store, session, settings):
        await store.append(session, 0, make_records(Configured(settings=settings, session=session)))

    async def main():
        store, settings = MemoryStore(), Settings(instructions="x" * 100_000)
        await append(store, "first", settings)
        tracemalloc.start()
        for number in range(10):
            await append(store, f"session {number}", settings)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert size < 100_000

    asyncio.run(main())


def test_a_record_stays_intact_if_the_program_changes_a_value_in_its_settings():
    async def main():
        store, limits = MemoryStore(), {"amount": "<= 50"}
        rule = PermissionRule(decision="allow", arguments=limits)
        (record,) = make_records(Configured(settings=Settings(policy=Policy(rules=(rule,))), session="a"))
        await store.append("a", 0, [record])
        limits["amount"] = "<= 60"
        (found,) = await store.read("a")
        assert found.data == record.data

    asyncio.run(main())
