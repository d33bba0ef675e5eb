"""The run: prepare outside, then every wanted group inside a network namespace of a worker."""

import argparse
import os
import sys
import time

from . import judge, prepare, suites, workers
from .model import GROUPS, OUT, may_select

# Importing a module registers its groups.
from .peers import (  # noqa: F401
    attacks,
    automation,
    capture,
    cifs,
    clients,
    cluster,
    cluster_ceph,
    cluster_plot,
    cluster_torture,
    cluster_upgrade,
    compression,
    crossing,
    dfs,
    dfs_failover,
    dfs_referrals,
    differential,
    disks,
    embedded,
    enumeration,
    frevo_client,
    fruit,
    guests,
    host_users,
    interrupted,
    java,
    kerberos,
    ksmbd,
    ldap,
    libsmb2_examples,
    links,
    logon_rules,
    migration,
    mount,
    netdfs,
    node,
    odd_disks,
    outage,
    pair,
    pike,
    programs,
    quic,
    rdma,
    recycle,
    rough,
    rpc,
    scanning,
    security,
    service,
    shadow_copies,
    smbclient,
    smbpasswd,
    smbtorture,
    spotlight,
    srvsvc,
    test_suites,
    two_guests,
    upgrade,
    witness,
    witness_figures,
    worm,
    xfstests,
)
from .servers import newer_samba


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
    ap.add_argument("--prepare", action="store_true", help="fetch and build the programs of others and stop")
    ap.add_argument("--profile", default="release", help="cargo profile of the server (release)")
    ap.add_argument(
        "--frevo", metavar="FILE", help="a program already built (for smbtorture with the feature test-hooks)"
    )
    ap.add_argument(
        "--built",
        metavar="DIR",
        help="a directory with the program, the peers and the examples, already built as ./dev/test does",
    )
    ap.add_argument("--compare", metavar="TSV", help="an earlier TSV: print what changed, fail if a pass was lost")
    ap.add_argument(
        "--workers", type=int, default=5, help=f"groups at one time, of which {workers.COMPUTING} may compute (5)"
    )
    ap.add_argument(
        "--samba",
        choices=("4.22", "4.25"),
        help="smbtorture, and with --server smbd or differential/* the other server, of this release: fetched once, "
        "only these groups run, and xfstests/* if named by --only",
    )
    ap.add_argument(
        "--strict",
        action="store_true",
        help="a skipped check that is not expected fails the run, and no failed check gets a second attempt",
    )
    args = ap.parse_args()
    if args.built or args.profile != "release":
        # A program with assertions fails if one poll uses more processor time than this many
        # milliseconds. Optimised builds are measured too if the variable is set by hand.
        limits = {"sim": "20", "dev": "200"}
        os.environ.setdefault("FREVO_HELD_CORE_MS", "50" if args.built else limits.get(args.profile, "200"))
    return args


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


def runs_with_newer(group, args):
    """Tells if a group runs with --samba; xfstests, which takes hours, does only if it is asked for."""
    if group.samba and args.samba < group.samba:
        return False
    name = group.name
    named = ("dfs/smbd", "netdfs/torture")
    return (
        name.startswith(("smbtorture/", "differential/", "quic/", "spotlight/"))
        or name in named
        or bool(args.only)
        and name.startswith("xfstests/")
    )


def main():
    args = arguments()
    wanted = [
        g
        for g in GROUPS
        if may_select(args.only, g.name)
        and (args.full or not g.full_only or any(p.startswith(g.name) for p in args.only))
        and (args.only or not g.named_only)
        and (runs_with_newer(g, args) if args.samba else not g.samba)
    ]
    if args.list:
        for g in GROUPS:
            if may_select(args.only, g.name):
                print(f"{g.name:34} {g.profile:14} {'full ' if g.full_only else 'quick'} {g.about}")
        return 0
    if not wanted:
        raise SystemExit("--only matches no group; see --list")
    if "FREVO_INTEROP_INSIDE" in os.environ:
        workers.work(args, os.environ["FREVO_INTEROP_INSIDE"])
        return 0
    OUT.joinpath("logs").mkdir(parents=True, exist_ok=True)
    if args.samba:
        newer_samba(args.samba)
    suites.wanted_by(wanted)
    prepare.fetch(wanted)
    if args.prepare:
        return 0
    program = prepare.build(args, wanted)
    began = time.monotonic()
    expectations = judge.Expectations(args.server, args.samba)
    rows, taken = workers.run_groups(wanted, args, program)
    verdicts = [expectations.judge(r) for r in rows]
    again = [] if args.strict else judge.worth_another_attempt(wanted, rows)
    if again:
        print("second attempt, alone: " + ", ".join(g.name for g in again))
        args.workers = 1
        second, _ = workers.run_groups(again, args, program)
        rows = judge.with_second_attempt(rows, second, expectations)
        verdicts = [r.verdict for r in rows]
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
    longest = sorted(taken, key=taken.get, reverse=True)[:10]
    print("longest: " + ", ".join(f"{name} {taken[name]:.0f} s" for name in longest))
    passed = sum(v == "good" for v in verdicts)
    skipped = sum(r.result == "skip" for r in rows)
    unstable = [r.name for r in rows if r.verdict == "UNSTABLE"]
    if unstable:
        print("unstable, passed in the second attempt only: " + ", ".join(unstable))
    passed += len(unstable)
    print(f"{len(rows) - passed - skipped - bad} of {len(rows)} checks failed as expected")
    print(f"interop: {passed} passed, {bad} failed, {skipped} skipped")
    # Only a whole run must reach all passes of the baseline: without a cited reason no pass may be
    # lost.
    return 1 if bad or worse or not rows or (args.full and uncited) else 0


sys.exit(main())
