"""The run: prepare outside, then every wanted group inside a network namespace."""

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from . import judge, prepare, suites
from .model import GROUPS, HERE, OUT, ROOT, Context, may_select

# Each module registers its groups on import.
from .peers import (  # noqa: F401
    attacks,
    cifs,
    clients,
    crossing,
    differential,
    disks,
    embedded,
    enumeration,
    frevo_client,
    fruit,
    host_users,
    interrupted,
    java,
    ksmbd,
    links,
    mount,
    outage,
    pair,
    pike,
    programs,
    recycle,
    rough,
    security,
    service,
    smbclient,
    smbpasswd,
    smbtorture,
    srvsvc,
    test_suites,
    two_guests,
    upgrade,
    xfstests,
)
from .servers import ADDRESS, PROFILES, Server, newer_samba


def arguments():
    ap = argparse.ArgumentParser(prog="dev/interop/run", description=__doc__)
    ap.add_argument("--server", choices=("frevo", "smbd"), default="frevo", help="smbd is the reference run")
    level = ap.add_mutually_exclusive_group()
    level.add_argument("--quick", dest="full", action="store_false", help="a few minutes (default)")
    level.add_argument("--full", action="store_true", help="also the big trees, long fsx runs, more of smbtorture")
    ap.set_defaults(full=False)
    ap.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="glob of groups or checks; repeatable"
    )
    ap.add_argument("--list", action="store_true", help="name the groups and stop")
    ap.add_argument("--profile", default="release", help="cargo profile of the server (release)")
    ap.add_argument(
        "--frevo", metavar="FILE", help="a program already built (for smbtorture with the feature test-hooks)"
    )
    ap.add_argument("--compare", metavar="TSV", help="an earlier TSV: print what changed, fail if a pass was lost")
    ap.add_argument("--workers", type=int, default=4, help="servers at one time for the suites that mostly wait (4)")
    ap.add_argument(
        "--samba",
        choices=("4.22",),
        help="smbtorture, and with --server smbd or differential/* the other server, of this release: fetched once, "
        "only these groups run",
    )
    ap.add_argument("--strict", action="store_true", help="a skipped check that is not expected fails the run")
    args = ap.parse_args()
    if args.profile != "release":
        # A build with assertions fails when one poll takes so much processor time.  Releases
        # are measured too if the variable is set by hand.
        default = "20" if args.profile == "sim" else "200"
        os.environ.setdefault("FREVO_HELD_CORE_MS", default)
    return args


def run_group(group, server, args):
    """Runs one group; an exception of the harness itself is a failed row."""
    work = Path(tempfile.mkdtemp(dir=os.environ["FREVO_INTEROP_WORK"]))
    print(f"{group.name} ({group.profile})\n", end="", flush=True)
    log_name = group.name.replace("/", "-") + ".log"
    with open(OUT / "logs" / log_name, "w") as log:
        ctx = Context(group, server, args.full, args.only, work, log)
        try:
            group.run(ctx)
        except Exception as e:  # a broken check must not hide the other groups
            log.write(traceback.format_exc())
            ctx.add("harness", "fail", 0.0, f"{type(e).__name__}: {e}")
    shutil.rmtree(work, ignore_errors=True)
    return ctx


class Worker:
    """Runs groups one after the other, each on a server with the profile that it names."""

    def __init__(self, args, program, address=ADDRESS):
        self.args, self.program, self.address, self.server = args, program, address, None

    def run(self, group):
        """Returns the rows of one group."""
        if self.server and self.server.profile != group.profile:
            self.stop()
        try:
            self.server = self.server or Server(
                self.args.server, group.profile, self.program, self.address, self.args.samba
            )
        except RuntimeError as e:
            context = Context(group, None, self.args.full, [], OUT, None)
            context.add("server-start", "fail", 0.0, e)
            return context.rows
        ctx = run_group(group, self.server, self.args)
        panics = self.server.panics()
        if panics or not self.server.is_alive():
            ctx.patterns = []
            ctx.add("server-alive", "fail", 0.0, panics[0] if panics else "the server accepts no connections")
            self.stop()
        else:
            self.server.clear()
        return ctx.rows

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None


def run_groups(groups, args, program):
    """Returns the rows of all groups: first the groups that may run side by side, then the rest in turn."""
    order = list(PROFILES)
    beside = sorted((g for g in groups if g.beside is not None), key=lambda g: -g.beside)
    alone = sorted((g for g in groups if g.beside is None), key=lambda g: order.index(g.profile))
    found = {}

    def work(number):
        worker = Worker(args, program, f"198.18.0.{10 + number}")
        subprocess.run(["ip", "addr", "add", f"{worker.address}/24", "dev", "tap0"], check=True)
        while beside:
            try:
                group = beside.pop(0)
            except IndexError:
                break
            found[group.name] = worker.run(group)
        worker.stop()

    if beside:
        with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
            for done in [pool.submit(work, number) for number in range(min(args.workers, len(beside)))]:
                done.result()
    worker = Worker(args, program)
    for group in alone:
        found[group.name] = worker.run(group)
    worker.stop()
    return [row for group in groups for row in found[group.name]]


def compare(rows, path):
    """Prints what changed since an earlier TSV; returns how many passes were lost."""
    before = judge.results(path)
    worse = 0
    for row in rows:
        was = before.get(row.name)
        if was and was != row.result:
            worse += was == "pass"
            print(f"{'WORSE ' if was == 'pass' else 'change'} {row.name}: {was} -> {row.result}")
    return worse


def go_inside(program):
    """Runs this command again in namespaces of its own; its mounts and networks end with it."""
    # The servers' directories are in memory, since smbtorture's allocation sizes want that; the
    # peers' are on disk, where a guest can see them.
    with (
        tempfile.TemporaryDirectory(prefix="frevo-interop.", dir=os.environ.get("TMPDIR", "/dev/shm")) as served,
        tempfile.TemporaryDirectory(prefix="work.", dir=OUT) as work,
    ):
        os.chmod(served, 0o755)
        inside = {"FREVO_INTEROP_INSIDE": program, "FREVO_INTEROP_WORK": work, "TMPDIR": served}
        command = [HERE / "with-netns", sys.executable, "-m", "harness", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, **inside}, cwd=ROOT).returncode


def main():
    args = arguments()
    wanted = [
        g
        for g in GROUPS
        if may_select(args.only, g.name)
        and (args.full or not g.full_only or any(p.startswith(g.name) for p in args.only))
        and (args.only or not g.named_only)
        and (g.name.startswith(("smbtorture/", "differential/")) if args.samba else not g.samba)
    ]
    if args.list:
        for g in GROUPS:
            if may_select(args.only, g.name):
                print(f"{g.name:34} {g.profile:14} {'full ' if g.full_only else 'quick'} {g.about}")
        return 0
    if not wanted:
        raise SystemExit("--only matches no group; see --list")
    OUT.joinpath("logs").mkdir(parents=True, exist_ok=True)
    if "FREVO_INTEROP_INSIDE" not in os.environ:
        if args.samba:
            newer_samba(args.samba)
        suites.wanted_by(wanted)
        return go_inside(prepare.everything(args, wanted) or "")

    began = time.monotonic()
    expectations = judge.Expectations(args.server, args.samba)
    rows = run_groups(wanted, args, os.environ["FREVO_INTEROP_INSIDE"])
    verdicts = [expectations.judge(r) for r in rows]
    level, seconds = "full" if args.full else "quick", time.monotonic() - began
    text = judge.write(rows, args.server, level, seconds, args.only, args.samba)
    print("\n" + text)
    for test in expectations.idle() if args.full and not args.only else []:
        print(f"note: expected.toml: no check was named {test}")
    bad = sum(v.startswith("UNEXPECTED") or (args.strict and v == "SKIPPED") for v in verdicts)
    worse = compare(rows, args.compare) if args.compare else 0
    uncited = 0
    for line, lost in expectations.against_reference(rows):
        print(line)
        uncited += lost
    passed = sum(v == "good" for v in verdicts)
    skipped = sum(r.result == "skip" for r in rows)
    print(f"{len(rows) - passed - skipped - bad} of {len(rows)} checks failed as expected")
    print(f"interop: {passed} passed, {bad} failed, {skipped} skipped")
    # Only a whole run is compared with the baseline: a pass may be lost only for a cited reason.
    return 1 if bad or worse or not rows or (args.full and uncited) else 0


sys.exit(main())
