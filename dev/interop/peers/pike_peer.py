"""Runs a module of pike's own tests against the server in PIKE_*; prints a line per test.

pike_peer.py MODULE|--list [PATTERN...]
"""

import fnmatch
import importlib
import signal
import sys
import time
import unittest

SECONDS = 150  # seconds for one test; some wait two minutes until a handle expires


class Lines(unittest.TestResult):
    """Prints `ok|FAIL|skip NAME SECONDS [REASON]`."""

    def startTest(self, test):
        super().startTest(test)
        self.began, self.told = time.monotonic(), False
        signal.alarm(SECONDS)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def tell(self, word, test, reason=""):
        # Report a test only once, even if its cleanup fails, too.
        if not self.told:
            reason = " ".join(reason.split())[:250]
            print(f"{word} {name(test)} {time.monotonic() - self.began:.2f} {reason}".rstrip(), flush=True)
        self.told = True

    def addSuccess(self, test):
        self.tell("ok", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        print(self.failures[-1][1], file=sys.stderr)
        self.tell("FAIL", test, f"{error[0].__name__}: {error[1]}")

    def addError(self, test, error):
        super().addError(test, error)
        print(self.errors[-1][1], file=sys.stderr)
        self.tell("FAIL", test, f"{error[0].__name__}: {error[1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell("skip", test, reason)


def name(test):
    """Returns Case.test, without the module."""
    return ".".join(test.id().split(".")[-2:])


def tests(module):
    """Returns every test of a module, in its order."""
    pending = [unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("pike.test." + module))]
    while pending:
        one = pending.pop(0)
        if isinstance(one, unittest.TestSuite):
            pending[:0] = list(one)
        else:
            yield one


def too_long(*_):
    raise TimeoutError(f"no end after {SECONDS} s")


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        for test in tests(sys.argv[2]):
            print(name(test))
    else:
        signal.signal(signal.SIGALRM, too_long)
        wanted = sys.argv[2:]
        unittest.TestSuite(
            t for t in tests(sys.argv[1]) if not wanted or any(fnmatch.fnmatchcase(name(t), w) for w in wanted)
        ).run(Lines())
