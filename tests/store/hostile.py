"""Names that a data set, a model or a scorer may come up with."""

NAMES = [
    "../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    " ",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd()",
    "@everyone",
    "line\nbreak\r\nand\ttab",
    "\x1b[2J\x1b]0;title\x07red",
    "\x00nul\x07bell\x85\u2028",
    "\u202egnp.exe",
    "a|b`c`*d*_e_[f](g)~h~",
    "x" * 300,
    "🦅 emoji 名前",
    "]]></system-out>&amp;<!--",
    "\ufffe\uffff",
]
