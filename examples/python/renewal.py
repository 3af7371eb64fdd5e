"""Tells a program that it goes on from a snapshot, so that it renews what two copies of one must not share."""

import random
import secrets
import ssl
import threading
from collections.abc import Callable

NOTICE = "/proc/gvisor/checkpoint"


def reseed() -> None:
    """Gives both generators that live in this process's memory new seeds; the kernel's own is never the same twice."""
    random.seed(secrets.token_bytes(32))
    # OpenSSL keeps a generator of its own, of which TLS takes its keys
    ssl.RAND_add(secrets.token_bytes(32), 32)


def on_restore(renew: Callable[[], None]) -> None:
    """Calls renew, in a thread of its own, each time that this process has been restored. Nothing outside of gVisor."""

    def watch() -> None:
        while True:
            try:
                # a read ends at the next snapshot: "restore" in the copy, "resume" in a process that just went on
                with open(NOTICE, "rb", buffering=0) as notice:
                    event = notice.read(16)
            except FileNotFoundError:
                return
            if event == b"restore\n":
                renew()

    threading.Thread(target=watch, name="renewal", daemon=True).start()
