"""Text that every reader takes.

Half of a surrogate pair (a character cut in two somewhere on its way) cannot be written
as UTF-8: not to a log, not to a wire.  One of them in a saved message would make every
later request fail, so it is mended on the way in: halves that belong together are joined,
the rest is replaced.
"""


def describe_error(error: BaseException) -> str:
    """The message of an error, which may come from foreign code and raise when it is asked for."""
    try:
        return sound(str(error))
    except BaseException as second:  # noqa: BLE001 - not swallowed: the message names it
        return f"(its own message raised {type(second).__name__})"


def sound(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
