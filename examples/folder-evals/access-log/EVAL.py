"""The report, line by line; and the log as it was."""

EXPECTED = {"errors": "3", "busiest": "/search", "bytes": "95298"}


async def score(sandbox):
    report = await sandbox.read("report.txt")
    if report is None:
        return {"passed": False, "checks": [{"name": "report.txt is there", "passed": False}]}
    lines = report.strip().splitlines()
    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    checks = [
        {
            "name": f"{name} is right",
            "passed": said.get(name) == value,
            "notes": "" if said.get(name) == value else f"it says {said.get(name)!r}",
        }
        for name, value in EXPECTED.items()
    ]
    checks.append({"name": "three lines, in order", "passed": [*said] == [*EXPECTED] and len(lines) == 3})
    same = await sandbox.exec(["cmp", "access.log", f"{sandbox.tests}/access.log"])
    checks.append({"name": "the log is untouched", "passed": same.ok})
    return {"checks": checks}
