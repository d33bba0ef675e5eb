"""A client that is not part of the attack, in a process of its own; it prints its latencies.

`honest` uses one connection from before the attack; `newcomer` logs on anew each time.
Each line: KIND BEGAN SECONDS, KIND being echo, make or logon, or failed with its reason.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import raw  # noqa: E402
from attacks.link import Link  # noqa: E402


def say(kind, began, *more):
    print(kind, f"{began:.6f}", f"{time.monotonic() - began:.6f}", *more, flush=True)


def honest(target, source, user, password, share, pause):
    link = Link(target, source, timeout=60).log_on_as(user, password)
    link.connect_tree(share).must()
    name, count = f"honest-{os.getpid()}", 0
    while True:
        began = time.monotonic()
        link.call(raw.ECHO, b"\4\0\0\0").must()
        say("echo", began)
        began = time.monotonic()
        file = link.open(f"{name}-{count}", options=0x1000, access=0x12019F | 0x10000)
        link.call(raw.CLOSE, raw.close_body(file)).must()
        say("make", began)
        count += 1
        time.sleep(pause)


def newcomer(target, source, user, password, share, pause):
    while True:
        began = time.monotonic()
        try:
            link = Link(target, source, timeout=15).log_on_as(user, password)
            link.connect_tree(share).must()
            link.call(raw.ECHO, b"\4\0\0\0").must()
            say("logon", began)
            link.close()
        except (OSError, raw.Refused) as e:
            say("failed", began, type(e).__name__, *str(e).split())
        time.sleep(pause)


if __name__ == "__main__":
    what, address, port, source, pause = sys.argv[1:6]
    user, password, share = (os.environ["SMB_" + k] for k in ("USER2", "PASS", "SHARE2"))
    try:
        {"honest": honest, "newcomer": newcomer}[what](
            (address, int(port)), source or None, user, password, share, float(pause)
        )
    except (OSError, raw.Refused) as e:
        print("lost", f"{time.monotonic():.6f}", "0", type(e).__name__, e, flush=True)
