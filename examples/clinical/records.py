"""The synthetic clinic: patients, drugs and guidelines, read from `data/` and checked when they are loaded.

All people, numbers and rules are invented. Nothing here may be used to treat anyone.
"""

import tomllib
import unicodedata
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

DATA = Path(__file__).parent / "data"
TODAY = date(2026, 11, 17)
"""The day on which the invented records end; ages and scores are computed for it."""


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of the data set; a misspelt field in a file is an error."""


class Note(Item, frozen=True):
    id: str
    author: str
    text: str
    """Free text of a person, a machine or another clinic: data, never instructions."""


class Lab(Item, frozen=True):
    id: str
    test: str
    value: float
    unit: str
    day: date
    comment: str = ""
    """Free text of the laboratory: data, never instructions."""


class Vitals(Item, frozen=True):
    systolic: int
    diastolic: int
    respiratory_rate: int
    is_confused: bool = False


class Patient(Item, frozen=True):
    id: str
    name: str
    born: date
    sex: Literal["female", "male"]
    conditions: tuple[str, ...] = ()
    allergies: tuple[str, ...] = ()
    """Drugs and drug classes."""
    medications: tuple[str, ...] = ()
    vitals: Vitals | None = None
    labs: tuple[Lab, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def age(self) -> int:
        had_birthday = (TODAY.month, TODAY.day) >= (self.born.month, self.born.day)
        return TODAY.year - self.born.year - (0 if had_birthday else 1)

    @property
    def sources(self) -> frozenset[str]:
        """Ids that a briefing may cite."""
        return frozenset(
            {"record", "vitals", *(lab.id for lab in self.labs), *(note.id for note in self.notes)}
        )

    def newest_lab(self, test: str) -> Lab | None:
        found = [lab for lab in self.labs if lab.test == test]
        return max(found, key=lambda lab: lab.day, default=None)


class Drug(Item, frozen=True):
    name: str
    group: str
    daily_mg_max: float
    contraindications: tuple[str, ...] = ()
    """Conditions in which the drug must not be given."""
    interactions: tuple[str, ...] = ()
    """Drugs and groups that it must not be combined with."""
    egfr_min: float = 0.0
    """Kidney function below which it must not be given, in mL/min/1.73 m²."""
    potassium_max: float | None = None
    """Potassium above which it must not be given, in mmol/L."""


class Guideline(Item, frozen=True):
    id: str
    title: str
    text: str


class Clinic(Item, frozen=True):
    patients: tuple[Patient, ...]
    drugs: tuple[Drug, ...]
    guidelines: tuple[Guideline, ...]

    def patient(self, id_: str) -> Patient | None:
        return next((each for each in self.patients if each.id == id_), None)

    def drug(self, name: str) -> Drug | None:
        """The drug of that generic name; case, spaces and forms of a letter do not matter."""
        wanted = " ".join(unicodedata.normalize("NFKC", name).lower().split())
        return next((each for each in self.drugs if each.name == wanted), None)


@cache
def load_clinic(folder: Path = DATA) -> Clinic:
    """Read and check the data set."""
    tables: dict[str, object] = {}
    for name in ("patients", "drugs", "guidelines"):
        tables |= tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    return msgspec.convert(tables, Clinic)
