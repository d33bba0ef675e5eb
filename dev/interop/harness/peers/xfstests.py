"""xfstests over cifs.ko, when XFSTESTS names a built tree."""

import os
from pathlib import Path

from ..model import HERE, group

MOUNTS = {
    "default": "mfsymlinks,noperm,actimeo=0",
    "posix": "posix,actimeo=0",
    "cache-none": "mfsymlinks,noperm,cache=none",
}
# Seconds for one test, unless XFSTESTS_LIMIT says otherwise.
LIMIT = 120
# Tests for one guest: it has little memory, and a process of it that hangs stays.
AT_A_TIME = 40


def listed():
    """Returns the tests of XFSTESTS_ONLY, or of the list."""
    text = os.environ.get("XFSTESTS_ONLY") or (HERE / "xfstests.list").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [t if "/" in t else f"generic/{t}" for t in " ".join(lines).split()]


def xfstests(ctx, options):
    """Runs the tests in guests, a new one after each that has not ended."""
    tree = os.environ.get("XFSTESTS")
    if not tree:
        ctx.add("tests", "skip", 0.0, "XFSTESTS names no built tree of xfstests")
        return
    limit = int(os.environ.get("XFSTESTS_LIMIT", LIMIT))
    left = listed()
    while left:
        report = ctx.work / "report"
        report.write_text("")
        some = left[:AT_A_TIME]
        most = limit * len(some) + 60
        inside = [HERE / "guest-xfstests", Path(tree).resolve(), report, limit, options, *some]
        command = [HERE / "linux-client", "-M", "-m", "768M", "-t", most, "--", *inside]
        ctx.command(*command, timeout=most + 30)
        seen = ctx.report(report.read_text())
        if not seen:
            # Not even its limit ended it.
            ctx.add(left[0], "fail", 0.0, "the guest ended before it")
            seen = {left[0]}
        left = [t for t in left if t not in seen]
        ctx.server.clear()


for _name, _options in MOUNTS.items():

    @group(f"xfstests/{_name}", full_only=True, doc=f"xfstests over a mount with {_options}, if XFSTESTS is set")
    def _xfstests(ctx, options=_options):
        xfstests(ctx, options)
