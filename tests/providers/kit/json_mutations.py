"""Random changes of JSON values, for tests that compare two ways to read the same bytes."""

from copy import deepcopy


def list_places(value, found):
    """Every object and list in the value."""
    if isinstance(value, dict | list):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            list_places(inner, found)
    return found


def mutate_json(given, random, values, members):
    """A copy with one to three changes; `values` are put anywhere, `members` are names of new members."""
    changed = deepcopy(given)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        place = random.choice(list_places(changed, []))
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        value = deepcopy(random.choice(values))
        match random.choice(("set", "drop", "add", "repeat")):
            case "set" if keys:
                place[random.choice(keys)] = value
            case "drop" if keys:
                del place[random.choice(keys)]
            case "repeat" if isinstance(place, list) and place:
                place.insert(random.randrange(len(place) + 1), deepcopy(random.choice(place)))
            case _:
                if isinstance(place, dict):
                    place[random.choice(members)] = value
                else:
                    place.append(value)
    return changed
