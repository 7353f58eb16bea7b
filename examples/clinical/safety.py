"""The policy of orders, in code: which orders are refused, whatever a model, a prompt or a record says.

`find_hazards` is a pure function of the order, the data and the orders that are open. The hooks apply it to every call
before a person is asked, and again to arguments that a person edited. `ClinicTools.order_medication` applies it once
more when the order is carried out: two orders that are safe alone may wait at the same time and be unsafe together.
"""

import json
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from bridle import RunContext, ToolCall
from bridle.hooks import Refuse
from records import Clinic, Drug, Patient
from scores import MissingInput, compute_egfr

HazardKind = Literal[
    "unknown drug", "allergy", "contraindication", "interaction", "duplicate", "overdose", "kidney function"
]


class MedicationOrder(msgspec.Struct, frozen=True):
    patient: str
    drug: str
    dose_mg: float
    times_per_day: int
    days: int = 7
    reason: str = ""


class Hazard(msgspec.Struct, frozen=True):
    kind: HazardKind
    why: str


def find_hazards(
    order: MedicationOrder, patient: Patient, clinic: Clinic, open_orders: Sequence[MedicationOrder] = ()
) -> tuple[Hazard, ...]:
    """Every reason not to give the drug; empty if none is known. `open_orders` are those of the patient."""
    drug = clinic.drug(order.drug)
    if drug is None:
        return (Hazard("unknown drug", f"{order.drug!r} is not in the formulary"),)
    taken = _list_taken(patient, clinic, open_orders)
    same_drug = [each for each in open_orders if clinic.drug(each.drug) == drug]
    daily_mg = sum(each.dose_mg * each.times_per_day for each in (order, *same_drug))
    hazards = [
        *find_interactions(drug, patient, clinic, open_orders),
        *_find_kidney_hazards(drug, patient),
    ]
    if allergies := {drug.name, drug.group} & set(patient.allergies):
        hazards.append(Hazard("allergy", f"{patient.id} is allergic to {', '.join(sorted(allergies))}"))
    if conditions := set(drug.contraindications) & set(patient.conditions):
        hazards.append(Hazard("contraindication", f"not with {', '.join(sorted(conditions))}"))
    if drug in taken:
        hazards.append(Hazard("duplicate", f"{patient.id} takes {drug.name} already, or it is ordered"))
    if daily_mg > drug.daily_mg_max:
        hazards.append(Hazard("overdose", f"{daily_mg:g} mg a day, at most {drug.daily_mg_max:g} mg"))
    return tuple(hazards)


def find_interactions(
    drug: Drug, patient: Patient, clinic: Clinic, open_orders: Sequence[MedicationOrder] = ()
) -> tuple[Hazard, ...]:
    """Hazards of the drug with what the patient takes or will take, whichever of the two lists the other."""
    return tuple(
        Hazard("interaction", f"{drug.name} with {other.name}")
        for other in _list_taken(patient, clinic, open_orders)
        if other != drug
        and (
            {other.name, other.group} & set(drug.interactions)
            or {drug.name, drug.group} & set(other.interactions)
        )
    )


def _list_taken(patient: Patient, clinic: Clinic, open_orders: Sequence[MedicationOrder]) -> tuple[Drug, ...]:
    """Drugs of the record and of the open orders, each once."""
    names = (*patient.medications, *(order.drug for order in open_orders))
    return tuple(dict.fromkeys(drug for name in names if (drug := clinic.drug(name))))


def _find_kidney_hazards(drug: Drug, patient: Patient) -> tuple[Hazard, ...]:
    """Without a creatinine, a drug that needs kidneys is refused: a missing value is no permission."""
    hazards: list[Hazard] = []
    if drug.egfr_min:
        try:
            egfr = compute_egfr(patient).value
        except MissingInput as missing:
            hazards.append(Hazard("kidney function", str(missing)))
        else:
            if egfr < drug.egfr_min:
                hazards.append(Hazard("kidney function", f"eGFR {egfr}, at least {drug.egfr_min:g}"))
    potassium = patient.newest_lab("potassium")
    if drug.potassium_max is not None and (potassium is None or potassium.value > drug.potassium_max):
        found = "unknown" if potassium is None else f"{potassium.value:g} mmol/L"
        hazards.append(Hazard("contraindication", f"potassium is {found}, at most {drug.potassium_max:g}"))
    return tuple(hazards)


class StayWithPatient:
    """Refuse calls about any patient but the one of the visit, which is the tenant of the session."""

    name = "stay_with_patient"

    def before_tool(self, run: RunContext[object], call: ToolCall) -> Refuse | None:
        asked = json.loads(call.arguments or "{}").get("patient", run.tenant)
        if asked == run.tenant:
            return None
        return Refuse(reason=f"wrong patient: this visit is about {run.tenant}, not {asked}")


class RefuseUnsafeOrders:
    """Refuse medication orders with a known hazard. A person cannot approve them either."""

    name = "refuse_unsafe_orders"
    tools = ("order_medication",)

    def __init__(self, clinic: Clinic, list_open_orders: Callable[[str], Sequence[MedicationOrder]]) -> None:
        """`list_open_orders` returns the medication orders of a patient that are not cancelled."""
        self._clinic, self._list_open_orders = clinic, list_open_orders

    def before_tool(self, run: RunContext[object], call: ToolCall) -> Refuse | None:
        order = msgspec.json.decode(call.arguments, type=MedicationOrder)
        patient = self._clinic.patient(order.patient)
        if patient is None:
            return Refuse(reason=f"there is no patient {order.patient!r}")
        hazards = find_hazards(order, patient, self._clinic, self._list_open_orders(patient.id))
        return Refuse(reason=describe_hazards(hazards)) if hazards else None


def describe_hazards(hazards: tuple[Hazard, ...]) -> str:
    return "unsafe order: " + "; ".join(f"{hazard.kind} ({hazard.why})" for hazard in hazards)
