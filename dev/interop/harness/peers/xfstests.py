"""xfstests over cifs.ko, when XFSTESTS names a built tree."""

import os
from pathlib import Path

from ..model import HERE, group

MOUNTS = {
    "default": "mfsymlinks,noperm,actimeo=0",
    "posix": "posix,actimeo=0",
    "cache-none": "mfsymlinks,noperm,cache=none",
}
# Seconds that one test may take, unless XFSTESTS_LIMIT is set.
LIMIT = 120
# Number of tests in one guest. A guest has little memory, and cannot get rid of a hung process.
AT_A_TIME = 40


def limits():
    """Returns {test: most seconds} for the tests of the list, in its order.

    NAME=SECONDS in the list is a test of many processes, each of which takes long in a guest.
    """
    lines = [line for line in (HERE / "xfstests.list").read_text().splitlines() if not line.startswith("#")]
    most = int(os.environ.get("XFSTESTS_LIMIT", LIMIT))
    entries = [entry.partition("=") for entry in " ".join(lines).split()]
    return {f"generic/{name}": max(most, int(seconds or 0)) for name, _, seconds in entries}


def listed(known):
    """Returns the tests of XFSTESTS_ONLY, or all of the list."""
    only = os.environ.get("XFSTESTS_ONLY")
    return [t if "/" in t else f"generic/{t}" for t in only.split()] if only else list(known)


def xfstests(ctx, options):
    """Runs the tests in guests, a new one after each that has not ended."""
    tree = os.environ.get("XFSTESTS")
    if not tree:
        ctx.add("tests", "skip", 0.0, "XFSTESTS names no built tree of xfstests")
        return
    known = limits()
    limit = int(os.environ.get("XFSTESTS_LIMIT", LIMIT))
    left = listed(known)
    while left:
        report = ctx.work / "report"
        report.write_text("")
        some = left[:AT_A_TIME]
        timed = {t: known.get(t, limit) for t in some}
        most = sum(timed.values()) + 60
        tests = [f"{t}={seconds}" for t, seconds in timed.items()]
        inside = [HERE / "guest-xfstests", Path(tree).resolve(), report, options, *tests]
        command = [HERE / "linux-client", "-M", "-m", "768M", "-t", most, "--", *inside]
        ctx.command(*command, timeout=most + 30)
        seen = ctx.report(report.read_text())
        if not seen:
            # Even the time limit did not end the test: the guest died.
            ctx.add(left[0], "fail", 0.0, "the guest ended before it")
            seen = {left[0]}
        left = [t for t in left if t not in seen]
        ctx.server.clear()


for _name, _options in MOUNTS.items():

    @group(
        f"xfstests/{_name}",
        profile="unix-extensions" if _name == "posix" else "default",
        full_only=True,
        doc=f"xfstests over a mount with {_options}, if XFSTESTS is set",
    )
    def _xfstests(ctx, options=_options):
        xfstests(ctx, options)
