"""Proof that an approval was given here, and not written into a log by somebody else.

A log may come from elsewhere, with approvals in it.  So each approval has an HMAC over the session, the
record with the call, the question and the arguments.  The key is not in the log, nor beside it, where it
would come along with a log that somebody hands over.  It is a file of the user, made with the first
approval: `BRIDLE_APPROVAL_KEY_FILE`, or `bridle/approval.key` in the user's folder of settings.  A store in
memory has a key of its own.

A resumed run checks the approvals of its open calls once.  One without a valid proof does not count, and
the question is put again.  Answers that let nothing run (reject, done) need no proof.
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
from bridle.ports.store import Store, SupportsApprovalKey
from bridle.ports.tool import Tool
from bridle.values.errors import Unusable
from bridle.values.events import ApprovalAnswered, CallReviewed

from .run_tool import find_resource_claim

APPROVAL_KEY_BYTES = 32
KEY_FILE_VARIABLE = "BRIDLE_APPROVAL_KEY_FILE"
_UNSAFE_MODE_BITS = stat.S_IRWXO | stat.S_IWGRP


def prove_answer(store: Store, session: str, state: State, event: ApprovalAnswered) -> str:
    """The proof of an approval; empty for another answer.  Raises `Unusable` when there can be no key."""
    if event.answer != "approve":
        return ""
    key = store.approval_key if isinstance(store, SupportsApprovalKey) else _read_key() or _make_key()
    place = find_call(state.pending_calls, event.call_id)
    item = state.pending_calls[place] if place is not None else None
    earlier = item.answer if item is not None and item.attempt else None
    # A call that was started keeps the arguments of the answer it was started with.
    arguments = event.arguments if earlier is None else earlier.arguments
    return _sign(key, session, state, event.binding, arguments)


def review_calls(
    store: Store, session: str, state: State, tools: Mapping[str, Tool], *, trusts_approvals: bool
) -> Iterable[CallReviewed]:
    """Events about open calls whose permission is not taken from the log.

    An approval needs a proof.  Whether a person must be asked is asked of the tool's code again.
    """
    key: bytes | None = None
    for item in state.pending_calls:
        if item.result is not None:
            continue
        said = find_resource_claim(tools, item.call)
        changed = said if said is not None and said != item.resource_claim else None
        discards = False
        if not trusts_approvals and item.answer is not None and item.answer.answer == "approve":
            key = key or (store.approval_key if isinstance(store, SupportsApprovalKey) else _read_key())
            discards = bool(item.answer.binding) and not _is_proved(key, session, state, item)
        if discards or changed is not None:
            yield CallReviewed(call_id=item.call.id, discards_approval=discards, resource_claim=changed)


def _is_proved(key: bytes | None, session: str, state: State, item: PendingCall) -> bool:
    answer = item.answer
    if key is None or answer is None:
        return False
    return hmac.compare_digest(
        _sign(key, session, state, answer.binding, answer.arguments).encode(), answer.proof.encode()
    )


def _sign(key: bytes, session: str, state: State, binding: str, arguments: str | None) -> str:
    """`State.proof` is the hash of the reply with the call, and so of everything before it."""
    signed = msgspec.json.encode(("approve", session, state.request_hash, binding, arguments))
    return hmac.new(key, signed, sha256).hexdigest()


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
            f"approvals need a key and there is no home folder for it; set {KEY_FILE_VARIABLE}"
        ) from error


def _read_key() -> bytes | None:
    """The key, or None when there is none yet."""
    path = find_key_file()
    try:
        status = path.stat()
        if os.name == "posix" and status.st_mode & _UNSAFE_MODE_BITS:
            raise Unusable(f"{path}: others may use this key of your approvals; chmod 600 it, or remove it")
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explain_unusable_key(path, error) from error
    if len(key) < APPROVAL_KEY_BYTES:
        raise Unusable(f"{path}: a key of approvals has {APPROVAL_KEY_BYTES} bytes or more; remove the file")
    return key


def _make_key() -> bytes:
    """A new key; of two processes that make one at once, both get that of the first."""
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
    """Give a finished file its name, unless there is one of that name by now."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return


def _explain_unusable_key(path: Path, error: OSError) -> Unusable:
    return Unusable(
        f"{path}: the key of your approvals cannot be used, {error.strerror}; name another file in {KEY_FILE_VARIABLE}"
    )
