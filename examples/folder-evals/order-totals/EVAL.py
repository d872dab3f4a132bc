"""The totals; a customer whose orders are all canceled may be left out or have 0."""

import json

EXPECTED = {"ada": 1325, "grace": 1000, "edsger": 40260}


async def score(sandbox):
    text = await sandbox.read("totals.json")
    try:
        totals = json.loads(text or "")
    except ValueError:
        totals = None
    if not isinstance(totals, dict):
        return {"passed": False, "checks": [{"name": "totals.json is a JSON object", "passed": False}]}
    checks = [
        {
            "name": f"total of {customer}",
            "passed": totals.get(customer) == cents,
            "notes": "" if totals.get(customer) == cents else f"it says {totals.get(customer)!r}",
        }
        for customer, cents in EXPECTED.items()
    ]
    others = {name: cents for name, cents in totals.items() if name not in EXPECTED and cents != 0}
    checks.append(
        {"name": "nobody else has paid", "passed": not others, "notes": ", ".join(map(str, others))}
    )
    return {"checks": checks}
