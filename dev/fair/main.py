"""Measures how long others wait while one account attacks.

Each row starts a server with default settings, one probe of the account `bob` (open, read 4 KiB, close), and one
newcomer after the other (connect, log on, open). Then the account `ann` attacks with as many connections as the
row says, and closes them. Figures are of the time before, during, and from 2 s after the end on: the median, the
99th percentile and the longest time of both probes, in ms, and the server's descriptors and memory.
"""

import argparse
import fnmatch
import os
import pathlib
import platform
import resource
import sys
import time

import beside
import crowds
import directories
import disks
import floods
import idle
import limited
import lists
import logons
import parts
import refusals
import rpc
import slow_calls
from client import Client, at_niceness
from server import Server

import attacks

REST, RECOVERY = 1.5, 2
MODULES = attacks, floods, refusals, slow_calls, logons, rpc, lists, parts, directories, crowds, disks
ATTACKS = [attack for module in MODULES for attack in module.ATTACKS]
#: MiB of memory that the server may keep after an attack.
KEPT = 16
#: Descriptors that it may keep: folders that it holds open for the next request, and a few of its own.
KEPT_FOLDERS = 24
#: The priority of an attacker's client that leaves the processors to the server.
LOWEST = 19
#: The load of a machine that is quiet.
QUIET = 1.0
HEAD = (
    "| attack | connections | | bob, ms | newcomers, ms | descriptors | MiB | processor, % | waits, % |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def many_files(data, count):
    """Makes the empty files of the folder `many`, unless they are there."""
    folder = data / "many"
    folder.mkdir(parents=True, exist_ok=True)
    if len(os.listdir(folder)) < count:
        for number in range(count):
            (folder / f"file-{number:06}.txt").touch()


def row(name, connections, phase, figures):
    resident, descriptors = figures["resident"], figures["descriptors"]
    return (
        f"| {name} | {connections} | {phase} | {figures['bob']} | {figures['new']} "
        f"| {descriptors[0]} | {resident[0]:.0f} | {figures['processor']:.0f} | {figures['waits']:.0f} |"
    )


def faults(attack, before, during, after):
    """Yields what misses a goal."""
    yield from attack.missed
    for kind, part, most in attack.goals:
        for phase, figures in (("during", during), ("after", after)):
            if not figures[kind].at(part) <= most:
                yield f"{kind} waits {figures[kind].at(part):.1f} ms at {part:.0%} {phase}, {most} are allowed"
    if during["bob"].faults or during["new"].faults:
        yield f"refused: {(during['bob'].faults + during['new'].faults)[0]}"
    kept = after["resident"][1] - before["resident"][1]
    if kept > KEPT and not attack.keeps:
        yield f"{kept:.0f} MiB are kept, {KEPT} are allowed"
    if not attack.keeps and after["descriptors"][1] > before["descriptors"][0] + KEPT_FOLDERS:
        yield f"{after['descriptors'][1] - before['descriptors'][0]} descriptors are kept"


def measure(options, attack, connections, niceness=0):
    """Returns the lines of one row, and the goals that it misses."""
    with disks.folder(options.dir, attack) as data:
        return measure_in(data, options, attack, connections, niceness)


def measure_in(data, options, attack, connections, niceness):
    if attack.files:
        many_files(data, attack.files)
    attack.prepare(data)
    how = {key: getattr(attack, key) for key in ("descriptors", "settings", "share", "limits", "accounts", "groups")}
    server = Server(options.server, options.dir / "server", options.port, data, **how)
    try:
        server.start_probes()
        time.sleep(1)
        before = server.rest(REST)
        share = "share" if attack.with_tree else None
        clients = [Client(options.port, "ann", share) for _ in range(connections)]
        attack.server, attack.missed = server, []
        begin = time.time()
        with at_niceness(niceness):
            done = attack.run(clients, begin + attack.seconds)
        during = server.phase(begin, time.time())
        for client in clients:
            client.close()
        time.sleep(RECOVERY)
        after = server.rest(REST)
        log = server.warnings()
    finally:
        server.stop()
    name = f"{attack.name}, its client at the lowest priority" if niceness else attack.name
    lines = [row(name, connections, "before", before)]
    lines += [row("", "", "during", during), row("", "", "after", after)]
    print(f"{attack.name} {connections}: {done}; {len(log)} warnings", *log[:3], sep="\n    ", file=sys.stderr)
    return lines, list(faults(attack, before, during, after))


INTRODUCTION = """# One account and the rest: how long others wait

While the account `ann` attacks, `bob` opens a file, reads 4 KiB and closes it, and newcomers connect,
log on and open it. Each cell has the median, the 99th percentile and the longest time. *after* begins
2 s after the end of the attack. The clients run on the same processors as the server: the attacker's at
the usual priority, the probes' at a higher one. So the server's cores wait for a processor that the attacker's client,
or another program, has: *waits* is the part of the time for which a core was ready and did not run, in the mean of
both. A row in which somebody waits too long is measured again with the attacker's client at the lowest priority.
[fair-128.md](fair-128.md) has earlier measurements of all rows with 128 connections."""

BESIDE = """## Beside the same calls of a program of the host

A disk is shared with all who use it, whatever a server does. Here 16 connections of ann, and then 16 processes of the
host, do the same work on a file system of its own in a loop device. Beside bob, another connection of bob opens a
file, writes 4 KiB, flushes and closes it, and a program of the host does the same without a server (`fsync`): median,
99th percentile and longest time, ms. `done` are rounds: a file cut or deleted, 64 KiB written and synced, a folder of
100,000 listed to its end, a file made, renamed and deleted in a folder of 20,000 (`names`).
"""

LIMITED = """## Beside an account with a limit of rate

Sixteen connections of ann read 1 MiB each, as fast as they may, while bob has no limit: rounds of 3 s with and without
that load take turns, 20 of each. Goal: bob's 99th percentile is at most 1.2 times that without the load.
"""

IDLE = """## 10,000 idle clients

Proportional set size of the server: after it has served one client, and with clients that ask nothing. The limits are
set to 20,000 connections and sessions of one account. Of clients that have not logged on there may be 4,096.
"""


def machine(load):
    """Returns a line about the machine, and whether others used it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    kernel = platform.release().split("-")[0]
    about = f"{os.cpu_count()} processors, {memory} GiB, Linux {kernel}, {time.strftime('%Y-%m-%d')}."
    if load < QUIET:
        return about
    return f"{about}\nOthers used the machine, too: its load was {load:.1f} before the first row."


def section_of_attacks(lines, missed):
    goals = f"{len(missed)} goals are missed:" if missed else "All goals are met."
    measured = {line.split(" | ")[0].strip("| ").split(",")[0] for line in lines}
    return [
        "## Attacks",
        "",
        *(f"- **{attack.name}**: {attack.text}" for attack in ATTACKS if attack.name in measured),
        "",
        "Goals: bob waits at most 5 ms at the median and 20 ms at the 99th percentile, newcomers 150 ms at the",
        f"99th; afterwards the server keeps at most {KEPT} MiB more than before. {goals}",
        *(f"- {fault}" for fault in missed),
        "",
        HEAD,
        *lines,
        "",
    ]


def page(options, load, sections):
    before = " --before OLD/frevo" if options.before else ""
    return "\n".join(
        [
            INTRODUCTION,
            machine(load),
            "",
            "```",
            f"dev/fair/run --server target/release/frevo{before} --parts {options.parts} --out docs/benchmarks/fair.md",
            "```",
            "",
            *sections,
        ]
    )


def attacks_of(options):
    """Measures all attacks. Returns their lines, and the goals that they miss."""
    lines, missed = [], []
    print(HEAD, flush=True)
    for attack in ATTACKS:
        if not any(fnmatch.fnmatchcase(attack.name, pattern) for pattern in options.rows.split(",")):
            continue
        numbers = map(int, options.connections.split(",")) if options.connections else attack.connections
        for connections in sorted({min(number, attack.most) for number in numbers}):
            try:
                more, faulty = measure(options, attack, connections)
                if any(" waits " in fault for fault in faulty):
                    more += measure(options, attack, connections, LOWEST)[0]
            except disks.Absent as absent:
                print(f"{attack.name} is left out: {absent}", file=sys.stderr)
                continue
            except (Exception, SystemExit) as fault:
                # The other rows are measured all the same.
                more, faulty = [], [f"not measured: {type(fault).__name__}: {fault}"]
            print(*more, *(f"MISSED: {fault}" for fault in faulty), sep="\n", flush=True)
            lines += more
            missed += [f"{attack.name}, {connections} connections: {fault}" for fault in faulty]
    return lines, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, required=True, help="the program frevo")
    parser.add_argument("--before", type=pathlib.Path, help="an earlier one, whose idle clients are measured too")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("target/fair/run"), help="for its files")
    parser.add_argument("--port", type=int, default=4800)
    parser.add_argument("--parts", default="attacks", help="attacks,beside,limited,idle (default: attacks)")
    parser.add_argument("--rows", default="*", help="names of attacks, with wildcards")
    parser.add_argument("--connections", help="such as 1,16,128 (default: those of each row)")
    parser.add_argument("--out", type=pathlib.Path, help="the page to write")
    options = parser.parse_args()
    options.dir, load = options.dir.resolve(), os.getloadavg()[0]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    parts, sections, missed = options.parts.split(","), [], []
    if "attacks" in parts:
        lines, missed = attacks_of(options)
        sections += section_of_attacks(lines, missed)
    if "beside" in parts:
        sections += [BESIDE, *beside.table(options), ""]
    if "limited" in parts:
        lines, more = limited.table(options)
        sections += [LIMITED, *lines, ""]
        missed += more
    if "idle" in parts:
        sections += [IDLE, *idle.table(options), ""]
    if options.out:
        options.out.write_text(page(options, load, sections))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
