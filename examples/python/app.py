"""Shows what survives a sleep: a dict of a million values in memory, and files of a volume that stay open.

GET  /                   counts: in memory, as rows of an SQLite table, as lines of a log that is held open, and in a
                         file that is mapped into memory. With the process's id and the journal mode
GET  /value?key=N        a value of the dict
POST /value?key=N        sets it to the request's body
GET  /random             the next bytes of Python's, OpenSSL's and the kernel's generators, and the name of this copy
GET  /readyz
"""

import argparse
import json
import mmap
import os
import random
import secrets
import signal
import sqlite3
import ssl
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import renewal

IDENTITY = Path("/run/ate")
MAPPED_BYTES = 4096
MAX_BODY_BYTES = 1 << 20


def identity(name: str) -> str:
    """One of the files that are made anew at every resume; "" outside of Substrate."""
    try:
        return (IDENTITY / name).read_text().strip()
    except FileNotFoundError:
        return ""


class State:
    """Everything that counts. Its methods may be called by several threads."""

    def __init__(self, folder: Path, journal: str, values: int) -> None:
        self._lock = threading.Lock()
        self._visits = 0
        self._values = {key: f"value {key}" for key in range(values)}
        folder.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(folder / "visits.db", check_same_thread=False, isolation_level=None)
        self.journal = self._database.execute(f"PRAGMA journal_mode={journal}").fetchone()[0]
        if self.journal != journal:
            raise RuntimeError(f"{folder} cannot hold a database with journal mode {journal}: it is {self.journal}")
        self._database.execute("CREATE TABLE IF NOT EXISTS visits (number INTEGER PRIMARY KEY, generation TEXT)")
        # held open for as long as the process lives, through every sleep
        self._log = open(folder / "visits.log", "a+", buffering=1)
        with open(folder / "visits.map", "a+b") as file:
            if os.fstat(file.fileno()).st_size < MAPPED_BYTES:
                file.truncate(MAPPED_BYTES)
            self._map = mmap.mmap(file.fileno(), MAPPED_BYTES)
        self.renew()

    def renew(self) -> None:
        """What must differ in every copy of this process."""
        renewal.reseed()
        self.copy = secrets.token_hex(8)

    def visit(self) -> dict[str, object]:
        with self._lock:
            self._visits += 1
            generation = identity("generation")
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("INSERT INTO visits (generation) VALUES (?)", (generation,))
            self._database.execute("COMMIT")
            self._log.write(f"visit {self._visits}\n")
            self._log.seek(0)
            lines = sum(1 for _ in self._log)
            mapped = int.from_bytes(self._map[:8], "little") + 1
            self._map[:8] = mapped.to_bytes(8, "little")
            self._map.flush()
            return {
                "memory": self._visits,
                "rows": self._database.execute("SELECT count(*) FROM visits").fetchone()[0],
                "lines": lines,
                "mapped": mapped,
                "values": len(self._values),
                "pid": os.getpid(),
                "journal": self.journal,
                "integrity": self._database.execute("PRAGMA quick_check").fetchone()[0],
                "actor": identity("actor-name"),
                "generation": generation,
            }

    def value(self, key: int) -> str | None:
        with self._lock:
            return self._values.get(key)

    def set_value(self, key: int, value: str) -> None:
        with self._lock:
            self._values[key] = value

    def random(self) -> dict[str, str]:
        return {
            "copy": self.copy,
            "python": random.randbytes(16).hex(),
            "openssl": ssl.RAND_bytes(16).hex(),
            "kernel": os.urandom(16).hex(),
        }


class Handler(BaseHTTPRequestHandler):
    """One thread for each connection."""

    protocol_version = "HTTP/1.1"
    state: State

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match url.path:
            case "/":
                self.answer(HTTPStatus.OK, self.state.visit())
            case "/value":
                self.answer_value(url.query)
            case "/random":
                self.answer(HTTPStatus.OK, self.state.random())
            case "/readyz":
                self.answer(HTTPStatus.OK, "ok")
            case _:
                self.answer(HTTPStatus.NOT_FOUND, f"there is no {url.path}")

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", "0"))
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            self.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a value has at most {MAX_BODY_BYTES} bytes")
            return
        body = self.rfile.read(length).decode()
        key = self.key(url.query)
        if url.path != "/value":
            self.answer(HTTPStatus.NOT_FOUND, f"there is no POST {url.path}")
        elif key is not None:
            self.state.set_value(key, body)
            self.answer(HTTPStatus.OK, body)

    def key(self, query: str) -> int | None:
        text = parse_qs(query).get("key", [""])[0]
        if text.isdecimal():
            return int(text)
        self.answer(HTTPStatus.BAD_REQUEST, "key must be a number, as in /value?key=123456")
        return None

    def answer_value(self, query: str) -> None:
        key = self.key(query)
        if key is None:
            return
        value = self.state.value(key)
        if value is None:
            self.answer(HTTPStatus.NOT_FOUND, f"there is no value {key}")
        else:
            self.answer(HTTPStatus.OK, value)

    def answer(self, status: HTTPStatus, content: object) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        if self.path != "/readyz":
            print(f"{self.command} {self.path}: {args[1] if len(args) > 1 else ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--folder", type=Path, default=Path("/data"), help="where the files are kept: a volume")
    parser.add_argument("--journal", choices=["wal", "delete"], default="wal", help="how SQLite commits")
    parser.add_argument("--values", type=int, default=1_000_000)
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Handler.state = State(options.folder, options.journal, options.values)
    renewal.on_restore(Handler.state.renew)
    print(f"listening on {options.port}, pid {os.getpid()}, journal {Handler.state.journal}", flush=True)
    ThreadingHTTPServer(("", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
