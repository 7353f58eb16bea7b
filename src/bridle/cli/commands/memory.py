"""List, add and remove notes of a tenant, a caller or a session.

Without --tenant, the notes are those of runs without a tenant; with --caller, those of that caller only. Notes are
shown to agents with Agent(memory=…), in conversations that start after the note was written.
"""

import argparse
import asyncio

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.cli.session_names import mark_session_argument
from bridle.run.memory.notes import NOTES_PREFIXES, Notes, NotesOwner
from bridle.values.errors import MisuseError
from bridle.values.memory import Note
from bridle.values.text import escape_text

MEMORY_ACTIONS = ("list", "add", "remove")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=MEMORY_ACTIONS)
    add("what", nargs="?", help="text of the note to add, or id of the note to remove")
    add("--tenant", default="", metavar="T", help="tenant whose notes to use")
    add(
        "--session",
        metavar="S",
        help="use the notes of this session; with --tenant, fail unless it belongs to the tenant",
    )
    mark_session_argument(parser, "session")
    add("--caller", default="", metavar="X", help="use the notes of this caller of the tenant")
    add("--json", action="store_true", help="print notes as JSON")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if (options.action == "list") != (options.what is None):
        wanted = {
            "list": "takes no argument",
            "add": "takes the text of a note",
            "remove": "takes the id of a note",
        }
        raise MisuseError(f"`bridle memory {options.action}` {wanted[options.action]}")
    if options.session is not None and options.session.startswith(NOTES_PREFIXES):
        raise MisuseError(
            f"{options.session} are a tenant's notes; name the tenant with --tenant, and a caller with --caller"
        )
    notes = asyncio.run(_run_action(options))
    if options.json:
        print_json(notes if options.action == "list" else notes[0])
    elif options.action != "list":
        print_line(f"{notes[0].id} {'added' if options.action == 'add' else 'removed'}")
    elif not notes:
        print_line("no notes")
    else:
        for note in notes:
            print_line(f"{note.id:<5} {note.written_by:<5}  {escape_text(' '.join(note.text.split()))}")
    return 0


async def _run_action(options: argparse.Namespace) -> tuple[Note, ...]:
    async with use_log(options.store, to_read=options.action != "add") as store:
        notes = Notes(store)
        whose = NotesOwner(options.tenant, options.session, options.caller)._asdict()
        if options.action == "list":
            return await notes.list(**whose)
        if options.action == "add":
            return (await notes.add(options.what, **whose),)
        return (await notes.remove(options.what, **whose),)
