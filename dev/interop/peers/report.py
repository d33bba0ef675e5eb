"""Shared by the Python peers: the line of a check, and the bytes they write."""

import contextlib
import sys
import time
import traceback


def pattern(size):
    """Returns the test bytes: byte i is i * 7 + i / 256."""
    return bytes((i * 7 + (i >> 8)) & 255 for i in range(size))


@contextlib.contextmanager
def check(name):
    """Prints `ok NAME SECONDS`, or `FAIL NAME SECONDS REASON`."""
    began = time.monotonic()
    try:
        yield
    except Exception as e:
        traceback.print_exc(file=sys.stderr)
        reason = " ".join(f"{type(e).__name__}: {e}".split())
        print(f"FAIL {name} {time.monotonic() - began:.2f} {reason}", flush=True)
    else:
        print(f"ok {name} {time.monotonic() - began:.2f}", flush=True)
