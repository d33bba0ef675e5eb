"""macOS semantics, tested by smbtorture's suites for vfs_fruit: a row per test."""

import re

from ..model import group, selects
from .smbtorture import WORDS, listing, short_name, torture

# Each suite with its time limit, twice the seconds of its longest test on smbd. vfs.unfruit is left
# out: it tests smbd's tool for leaving vfs_fruit.
SUITES = {
    "vfs.fruit": 60,
    "vfs.fruit_netatalk": 30,
    "vfs.fruit_file_id": 30,
    "vfs.fruit_timemachine": 30,
    "vfs.fruit_conversion": 30,
}


def run_suite(ctx, suite, seconds):
    """Runs each test by itself: a test may turn on for its session what others run without."""
    for test in listing(ctx, suite):
        short = short_name(suite, test)
        row = re.sub(r"[^\w-]+", "-", short)
        if not selects(ctx.patterns, f"{ctx.group.name}/{row}"):
            continue
        found = torture(ctx, test, seconds)
        result, took, reason = found.get(short) or ("notrun", 0.0, "smbtorture told nothing about it")
        reason = re.sub(r"^\(?(\.\./)+source\d/torture/([^)]*)\)?", r"\2", reason)
        ctx.add(row, WORDS.get(result, "fail"), took, reason if result != "success" else "")


for _suite, _seconds in SUITES.items():

    @group(f"torture-fruit/{_suite.removeprefix('vfs.')}", profile="torture", full_only=True)
    def _(ctx, suite=_suite, seconds=_seconds):
        """The smbtorture suite of this name, on a share for macOS."""
        run_suite(ctx, suite, seconds)
