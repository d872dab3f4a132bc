"""The fault lab: one reproducible scenario for every cause that a diagnosis can name, and healthy runs beside them.

`scenario` is what one is, `scenarios/` are all of them, `bench` is what they are made from, `tasks` and `replies` do what
goes wrong (in a worker, at a provider), `room` is a whole Hawk in which several run at once, `trial` runs one and judges
what was said, `lab` runs many. By hand: `python -m tests.faults.lab --list`.
"""
