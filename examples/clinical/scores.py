"""Risk scores, computed from the record alone, so that no model does arithmetic about a patient."""

from typing import Literal

import msgspec

from records import Patient

ScoreName = Literal["egfr", "curb65", "cha2ds2_vasc"]
UREA_HIGH, BREATHS_HIGH, SYSTOLIC_LOW, DIASTOLIC_LOW = 7.0, 30, 90, 60
KAPPA = {"female": 0.7, "male": 0.9}
ALPHA = {"female": -0.241, "male": -0.302}


class Score(msgspec.Struct, frozen=True):
    name: ScoreName
    value: float
    inputs: tuple[str, ...]
    """The facts that counted, so that a reader can check the number."""


class MissingInput(ValueError):
    """The record does not have what a score needs."""


def compute_score(patient: Patient, name: ScoreName) -> Score:
    match name:
        case "egfr":
            return compute_egfr(patient)
        case "curb65":
            return compute_curb65(patient)
        case "cha2ds2_vasc":
            return compute_cha2ds2_vasc(patient)


def compute_egfr(patient: Patient) -> Score:
    """Kidney function by the CKD-EPI equation of 2021, from the newest creatinine in mg/dL."""
    lab = patient.newest_lab("creatinine")
    if lab is None:
        raise MissingInput(f"{patient.id} has no creatinine; order the test first")
    ratio = lab.value / KAPPA[patient.sex]
    value = 142 * min(ratio, 1) ** ALPHA[patient.sex] * max(ratio, 1) ** -1.2 * 0.9938**patient.age
    if patient.sex == "female":
        value *= 1.012
    return Score(
        "egfr", round(value, 1), (f"{lab.id}: creatinine {lab.value} {lab.unit}", f"age {patient.age}")
    )


def compute_curb65(patient: Patient) -> Score:
    """Severity of pneumonia, 0 to 5."""
    vitals, urea = patient.vitals, patient.newest_lab("urea")
    if vitals is None or urea is None:
        raise MissingInput(f"{patient.id} needs vitals and urea for this score")
    facts = {
        "confusion": vitals.is_confused,
        f"{urea.id}: urea {urea.value} {urea.unit}": urea.value > UREA_HIGH,
        f"respiratory rate {vitals.respiratory_rate}": vitals.respiratory_rate >= BREATHS_HIGH,
        f"blood pressure {vitals.systolic}/{vitals.diastolic}": vitals.systolic < SYSTOLIC_LOW
        or vitals.diastolic <= DIASTOLIC_LOW,
        f"age {patient.age}": patient.age >= 65,
    }
    counted = tuple(fact for fact, is_true in facts.items() if is_true)
    return Score("curb65", len(counted), counted)


def compute_cha2ds2_vasc(patient: Patient) -> Score:
    """Stroke risk in atrial fibrillation, 0 to 9."""
    if "atrial fibrillation" not in patient.conditions:
        raise MissingInput(f"{patient.id} has no atrial fibrillation, so the score does not apply")
    points = {
        "heart failure": 1,
        "hypertension": 1,
        "diabetes": 1,
        "stroke": 2,
        "vascular disease": 1,
    }
    found = [(name, worth) for name, worth in points.items() if name in patient.conditions]
    if patient.age >= 65:
        found.append((f"age {patient.age}", 2 if patient.age >= 75 else 1))
    if patient.sex == "female":
        found.append(("female", 1))
    return Score("cha2ds2_vasc", sum(worth for _, worth in found), tuple(name for name, _ in found))
