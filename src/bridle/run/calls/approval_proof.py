"""Proves that an approval was given by this user and not written into the log by someone else.

A log may come from another machine and contain approvals.  Each approval therefore has an HMAC over the
session, the record with the call, the question and the arguments.  The key is neither in the log nor next to
it, where it would be copied along.  It is a file of the user, created with the first approval or snapshot:
`BRIDLE_APPROVAL_KEY_FILE`, or `bridle/approval.key` in the user's settings folder.  A store in memory has
its own key.

The same key signs snapshots of logs (run/recovery/snapshots.py).

A resumed run checks the approvals of its pending calls once.  An approval without a valid proof does not
count, and the question is asked again.  Answers that run nothing (reject, done) need no proof.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from bridle.core.calls.pending import PendingCall, find_call
from bridle.core.state import State
from bridle.ports.store import Store, SupportsApprovalKey, supports
from bridle.ports.tool import Tool
from bridle.values.calls import ServerAnswered
from bridle.values.errors import Unusable
from bridle.values.events import ApprovalAnswered, CallReviewed

from .run_tool import find_resource_claim

APPROVAL_KEY_BYTES = 32
KEY_FILE_VARIABLE = "BRIDLE_APPROVAL_KEY_FILE"
_UNSAFE_MODE_BITS = stat.S_IRWXO | stat.S_IWGRP


def prove_answer(store: Store, session: str, state: State, event: ApprovalAnswered) -> str:
    """Sign an approval; empty for other answers.  Raises `Unusable` if no key can be read or created."""
    if event.answer != "approve":
        return ""
    key = open_key(store)
    place = find_call(state.calls.batch.pending, event.call_id)
    item = state.calls.batch.pending[place] if place is not None else None
    earlier = item.answer if item is not None and item.attempt else None
    # A started call keeps the arguments of the answer that started it.
    arguments = event.arguments if earlier is None else earlier.arguments
    return _sign(key, session, state, event.binding, arguments)


def sign_request_answer(store: Store, session: str, state: State, event: ServerAnswered) -> str:
    """Sign an answer to a request of a server.  Raises `Unusable` if no key can be read or created."""
    key = open_key(store)
    return _sign(key, session, state, f"{event.kind}:{event.action}:{event.binding}", event.content)


def is_request_answer_proved(store: Store, session: str, state: State, event: ServerAnswered) -> bool:
    key = read_key(store)
    if key is None:
        return False
    signed = _sign(key, session, state, f"{event.kind}:{event.action}:{event.binding}", event.content)
    return hmac.compare_digest(signed.encode(), event.proof.encode())


def is_answer_proved(store: Store, session: str, state: State, event: ApprovalAnswered) -> bool:
    """True unless the answer approves a call without a valid proof."""
    if event.answer != "approve":
        return True
    # guard: answer-proof-compare
    return hmac.compare_digest(prove_answer(store, session, state, event).encode(), event.proof.encode())


def review_calls(
    store: Store, session: str, state: State, tools: Mapping[str, Tool], *, trusts_approvals: bool
) -> Iterable[CallReviewed]:
    """Events for pending calls whose permission is not accepted from the log.

    An approval needs a valid proof, and the tool's code is asked again for its resource claim.
    """
    key: bytes | None = None
    for item in state.calls.batch.pending:
        if item.result is not None:
            continue
        claim = find_resource_claim(tools, item.call)
        # guard: resource-claim-changed
        changed = claim if claim is not None and claim != item.resource_claim else None
        discards = False
        if not trusts_approvals and item.answer is not None and item.answer.answer == "approve":
            key = key or read_key(store)
            # guard: logged-approval-proof
            discards = bool(item.answer.binding) and not _is_proved(key, session, state, item)
        if discards or changed is not None:
            yield CallReviewed(
                call_id=item.call.id,
                discards_approval=discards,
                resource_claim=changed,
                name=item.call.name,
                arguments=item.call.arguments,
            )


def _is_proved(key: bytes | None, session: str, state: State, item: PendingCall) -> bool:
    answer = item.answer
    if key is None or answer is None:
        return False
    return hmac.compare_digest(
        _sign(key, session, state, answer.binding, answer.arguments).encode(), answer.proof.encode()
    )


def _sign(key: bytes, session: str, state: State, binding: str, arguments: str | None) -> str:
    """HMAC of an approval; `request_hash` covers the reply with the call and every record before it."""
    # guard: approval-binds-session
    signed = msgspec.json.encode(("approve", session, state.calls.request_hash, binding, arguments))
    return hmac.new(key, signed, sha256).hexdigest()


def open_key(store: Store) -> bytes:
    """The key for this store, which is created if there is none.  Raises `Unusable` if that fails."""
    return read_key(store) or _make_key()


def read_key(store: Store) -> bytes | None:
    """The key for this store, or None if none exists yet.  Raises `Unusable` if it cannot be read."""
    return store.approval_key if supports(store, SupportsApprovalKey) else _read_key()


def find_key_file() -> Path:
    named = os.environ.get(KEY_FILE_VARIABLE)
    if named:
        return Path(named)
    if os.name == "nt":
        settings = os.environ.get("APPDATA") or "~/AppData/Roaming"
    else:
        settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return Path(settings).expanduser() / "bridle" / "approval.key"
    except RuntimeError as error:
        raise Unusable(
            f"approvals need a key file and there is no home folder; set {KEY_FILE_VARIABLE}"
        ) from error


def _read_key() -> bytes | None:
    """The key, or None if none exists yet."""
    path = find_key_file()
    try:
        status = path.stat()
        if os.name == "posix" and status.st_mode & _UNSAFE_MODE_BITS:
            raise Unusable(f"{path}: other users can access this approval key; chmod 600 it, or remove it")
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explain_unusable_key(path, error) from error
    if len(key) < APPROVAL_KEY_BYTES:
        raise Unusable(f"{path}: an approval key has at least {APPROVAL_KEY_BYTES} bytes; remove the file")
    return key


def _make_key() -> bytes:
    """Create and return the key; if two processes create one at once, both get the first."""
    path = find_key_file()
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(APPROVAL_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            _publish(draft, path)
        finally:
            draft.unlink()
    except OSError as error:
        raise _explain_unusable_key(path, error) from error
    key = _read_key()
    assert key is not None
    return key


def _publish(draft: Path, path: Path) -> None:
    """Link the finished file to its final name, unless that name exists."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return


def _explain_unusable_key(path: Path, error: OSError) -> Unusable:
    return Unusable(
        f"{path}: cannot use the approval key: {error.strerror}; set {KEY_FILE_VARIABLE} to another file"
    )
