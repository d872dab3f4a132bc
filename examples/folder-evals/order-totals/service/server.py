"""The orders API. Every second page is answered with 429 when it is first asked for."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ORDERS = [
    {"id": 1, "customer": "ada", "cents": 1250, "canceled": False},
    {"id": 2, "customer": "grace", "cents": 999, "canceled": False},
    {"id": 3, "customer": "ada", "cents": 300, "canceled": True},
    {"id": 4, "customer": "edsger", "cents": 40000, "canceled": False},
    {"id": 5, "customer": "grace", "cents": 1, "canceled": False},
    {"id": 6, "customer": "barbara", "cents": 525, "canceled": True},
    {"id": 7, "customer": "ada", "cents": 75, "canceled": False},
    {"id": 8, "customer": "edsger", "cents": 260, "canceled": False},
]
STARTS = [0, 2, 4, 6]  # of pages; each has three orders, so that they overlap by one
SIZE = 3

asked = set()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/health":
            return self.answer(200, {"ok": True})
        page = parse_qs(url.query).get("page", ["1"])[0]
        if url.path != "/orders" or not page.isdigit() or not 1 <= int(page) <= len(STARTS):
            return self.answer(404, {"error": "no such page"})
        if int(page) % 2 == 0 and page not in asked:
            asked.add(page)
            return self.answer(429, {"error": "busy"}, {"Retry-After": "1"})
        start = STARTS[int(page) - 1]
        following = int(page) + 1 if int(page) < len(STARTS) else None
        return self.answer(200, {"orders": ORDERS[start : start + SIZE], "next": following})

    def answer(self, status, body, headers=None):
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


ThreadingHTTPServer(("", 8000), Handler).serve_forever()
