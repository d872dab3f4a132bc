from duration import parse

assert parse("90s") == 90
assert parse("1h30m") == 5400
assert parse("1h 30m") == 5400
assert parse("90") == 90
for wrong in ("", "soon"):
    try:
        parse(wrong)
    except ValueError:
        continue
    raise AssertionError(f"{wrong!r} is no duration")
print("all examples pass")
