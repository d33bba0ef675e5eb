"""The run: prepare outside, then every wanted group inside a network namespace."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from . import judge, prepare
from .model import GROUPS, HERE, OUT, ROOT, Context, may_select
from .peers import cifs, clients, crossing, rough, smbclient, smbtorture  # noqa: F401  (they register their groups)
from .servers import PROFILES, Server


def arguments():
    ap = argparse.ArgumentParser(prog="dev/interop/run", description=__doc__)
    ap.add_argument("--server", choices=("frevo", "smbd"), default="frevo", help="smbd is the reference run")
    level = ap.add_mutually_exclusive_group()
    level.add_argument("--quick", dest="full", action="store_false", help="a few minutes (default)")
    level.add_argument("--full", action="store_true", help="also the big trees, long fsx runs, more of smbtorture")
    ap.set_defaults(full=False)
    ap.add_argument("--only", action="append", default=[], metavar="PATTERN", help="glob of groups or checks; repeatable")
    ap.add_argument("--list", action="store_true", help="name the groups and stop")
    ap.add_argument("--profile", default="release", help="cargo profile of the server (release)")
    ap.add_argument("--frevo", metavar="FILE", help="a program already built, in place of a build")
    ap.add_argument("--compare", metavar="TSV", help="an earlier TSV: print what changed, fail if a pass was lost")
    ap.add_argument("--strict", action="store_true", help="a skipped check that is not expected fails the run")
    return ap.parse_args()


def run_group(group, server, args):
    """Runs one group; an exception of the harness itself is a failed row."""
    work = Path(tempfile.mkdtemp(dir=os.environ["FREVO_INTEROP_WORK"]))
    print(f"{group.name} ({group.profile})", flush=True)
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


def run_groups(groups, args, program):
    rows = []
    order = list(PROFILES)
    server = None
    for group in sorted(groups, key=lambda g: order.index(g.profile)):
        if server and server.profile != group.profile:
            server.stop()
            server = None
        try:
            server = server or Server(args.server, group.profile, program)
        except RuntimeError as e:
            context = Context(group, None, args.full, [], OUT, None)
            context.add("server-start", "fail", 0.0, e)
            rows += context.rows
            continue
        ctx = run_group(group, server, args)
        panics = server.panics()
        if panics or not server.is_alive():
            ctx.patterns = []
            ctx.add("server-alive", "fail", 0.0, panics[0] if panics else "the server no longer accepts")
            server.stop()
            server = None
        else:
            server.clear()
        rows += ctx.rows
    if server:
        server.stop()
    return rows


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
    """This command once more, in a namespace of its own; what it made goes with it."""
    # The servers' directories are in memory, since smbtorture's allocation sizes want that; the
    # peers' are on disk, where a guest can see them.
    with tempfile.TemporaryDirectory(prefix="frevo-interop.", dir=os.environ.get("TMPDIR", "/dev/shm")) as served, \
            tempfile.TemporaryDirectory(prefix="work.", dir=OUT) as work:
        os.chmod(served, 0o755)
        inside = {"FREVO_INTEROP_INSIDE": program, "FREVO_INTEROP_WORK": work, "TMPDIR": served}
        command = [HERE / "with-netns", sys.executable, "-m", "harness", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, **inside}, cwd=ROOT).returncode


def main():
    args = arguments()
    wanted = [
        g for g in GROUPS
        if may_select(args.only, g.name)
        and (args.full or not g.full_only or any(p.startswith(g.name) for p in args.only))
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
        return go_inside(prepare.everything(args, wanted) or "")

    began = time.monotonic()
    expectations = judge.Expectations(args.server)
    rows = run_groups(wanted, args, os.environ["FREVO_INTEROP_INSIDE"])
    verdicts = [expectations.judge(r) for r in rows]
    text = judge.write(rows, args.server, "full" if args.full else "quick", time.monotonic() - began, args.only)
    print("\n" + text)
    for test in expectations.idle() if args.full and not args.only else []:
        print(f"note: expected.toml: no check was named {test}")
    bad = sum(v.startswith("UNEXPECTED") or (args.strict and v == "SKIPPED") for v in verdicts)
    worse = compare(rows, args.compare) if args.compare else 0
    passed = sum(v == "good" for v in verdicts)
    skipped = sum(r.result == "skip" for r in rows)
    print(f"{len(rows) - passed - skipped - bad} of {len(rows)} checks failed as expected")
    print(f"interop: {passed} passed, {bad} failed, {skipped} skipped")
    return 1 if bad or worse or not rows else 0


sys.exit(main())
