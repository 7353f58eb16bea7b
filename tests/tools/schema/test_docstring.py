"""Docstrings, in the three ways people write them."""

from hypothesis import given
from hypothesis import strategies as st

from bridle.tools.schema.docstring import read_docstring


def test_sections_with_a_heading_and_an_indented_body():
    doc = read_docstring(
        """Book a trip.

        Rooms are held for a day.

        Args:
            city (str): Where to go.
                Capitals are cheaper: see below.
            days (Optional[int]): How long.
            **rest: ignored

        Returns:
            The booking number.
        """
    )
    assert doc.description == (
        "Book a trip.\n\nRooms are held for a day.\n\nReturns:\n    The booking number."
    )
    assert doc.parameters == {
        "city": "Where to go. Capitals are cheaper: see below.",
        "days": "How long.",
        "rest": "ignored",
    }


def test_sections_underlined_with_dashes():
    doc = read_docstring(
        """Book a trip.

        Parameters
        ----------
        city : str
            Where to go,
            in full.
        first, last : date
            When.

        Returns
        -------
        str
            The booking number.
        """
    )
    assert doc.description == ("Book a trip.\n\nReturns\n-------\nstr\n    The booking number.")
    assert doc.parameters == {"city": "Where to go, in full.", "first": "When.", "last": "When."}


def test_fields_with_colons():
    doc = read_docstring(
        """Book a trip.

        :param city: Where to go,
            in full.
        :type city: str
        :param int days: How long.
        :returns: the booking number
        :rtype: str
        """
    )
    assert doc.description == "Book a trip.\n\n:returns: the booking number"
    assert doc.parameters == {"city": "Where to go, in full.", "days": "How long."}


def test_prose_that_only_looks_like_a_section_is_kept():
    text = "Count the words.\n\nArgs: none are needed.\nParameters of the model are not touched."
    assert read_docstring(text) == (text, {})
    assert read_docstring("Args:") == ("Args:", {})


def test_no_docstring():
    assert read_docstring(None) == ("", {})
    assert read_docstring("   ") == ("", {})


@given(st.lists(st.sampled_from(
    ["Args:", "Parameters", "----------", "    x: y", "x : int", ":param x: y", "", "  deeper", "plain words"]
)))  # fmt: skip
def test_any_docstring_can_be_read(lines):
    doc = read_docstring("\n".join(lines))
    assert ("plain words" in doc.description) == ("plain words" in lines) or "plain words" in " ".join(
        doc.parameters.values()
    )
