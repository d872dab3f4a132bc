"""Where an attempt's time went: spans of one tree, totals by category, gaps that nothing explains.

Pure: events and records in, spans out. No I/O, and no clock but the one that is passed in. `build.build` is the way in.
"""
