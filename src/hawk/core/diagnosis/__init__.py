"""Diagnosis: from evidence to a named cause, with what was seen, what to do, and the next command. Pure.

`evidence` is what was observed, `rules/` what can be concluded from it (a module a layer), `about` what each cause means
and what to do about it, `diagnose` weighs what rules find and ranks it, `verdict` is the answer.
"""
