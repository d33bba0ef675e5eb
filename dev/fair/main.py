"""Measures how long others wait while one account attacks.

Each row starts a server with default settings, one probe of the account `bob` (open, read 4 KiB, close), and one
newcomer after the other (connect, log on, open). Then the account `ann` attacks with as many connections as the
row says, and closes them. Figures are of the time before, during, and from 2 s after the end on: the median, the
99th percentile and the longest time of both probes, in ms, and the server's descriptors and memory.
"""

import argparse
import fnmatch
import logging
import os
import pathlib
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import crowds
import disks
import floods
import lists
import logons
import parts
import refusals
import rpc
import slow_calls
from client import Client
from server import Server

import attacks

REST, RECOVERY = 2, 2
MODULES = attacks, floods, refusals, slow_calls, logons, rpc, lists, parts, crowds, disks
ATTACKS = [attack for module in MODULES for attack in module.ATTACKS]
#: MiB of memory that the server may keep after an attack.
KEPT = 16
#: Descriptors that it may keep: folders that it holds open for the next request, and a few of its own.
KEPT_FOLDERS = 24
HEAD = (
    "| attack | connections | | bob, ms | newcomers, ms | descriptors | MiB | processor, % |\n"
    "|---|---|---|---|---|---|---|---|"
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
        f"| {descriptors[0]} | {resident[0]:.0f} | {figures['processor']:.0f} |"
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


def measure(options, attack, connections):
    """Returns the lines of one row, and the goals that it misses."""
    with disks.folder(options.dir, attack) as data:
        return measure_in(data, options, attack, connections)


def measure_in(data, options, attack, connections):
    if attack.files:
        many_files(data, attack.files)
    attack.prepare(data)
    how = {key: getattr(attack, key) for key in ("descriptors", "settings", "share", "limits", "accounts")}
    server = Server(options.server, options.dir / "server", options.port, data, **how)
    try:
        server.start_probes()
        time.sleep(2)
        before = server.rest(REST)
        with ThreadPoolExecutor(8) as connecting:
            clients = list(connecting.map(lambda _: Client(options.port, "ann"), range(connections)))
        attack.server, attack.missed = server, []
        begin = time.time()
        done = attack.run(clients, begin + attack.seconds)
        during = server.phase(begin, time.time())
        for client in clients:
            client.close()
        time.sleep(RECOVERY)
        after = server.rest(REST)
        log = server.warnings()
    finally:
        server.stop()
    lines = [row(attack.name, connections, "before", before)]
    lines += [row("", "", "during", during), row("", "", "after", after)]
    print(f"{attack.name} {connections}: {done}; {len(log)} warnings", *log[:3], sep="\n    ", file=sys.stderr)
    return lines, list(faults(attack, before, during, after))


def page(options, lines, missed):
    goals = f"{len(missed)} goals are missed:" if missed else "All goals are met."
    measured = {line.split(" | ")[0].strip("| ") for line in lines}
    texts = [f"- **{attack.name}**: {attack.text}" for attack in ATTACKS if attack.name in measured]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return "\n".join(
        [
            "# One account and the rest: how long others wait",
            "",
            "While the account `ann` attacks, `bob` opens a file, reads 4 KiB and closes it, and newcomers connect,",
            "log on and open it. Each cell has the median, the 99th percentile and the longest time. *after* begins",
            "2 s after the end of the attack. The clients run on the same processors as the server: the attacker's at",
            "the usual priority, the probes' at a higher one.",
            f"{os.cpu_count()} processors, {memory} GiB, Linux {platform.release()}, {time.strftime('%Y-%m-%d')}.",
            "",
            "```",
            "dev/fair/run --server target/release/frevo --out docs/benchmarks/fair.md",
            "```",
            "",
            *texts,
            "",
            "Goals: bob waits at most 5 ms at the median and 20 ms at the 99th percentile, newcomers 150 ms at the",
            f"99th; afterwards the server keeps at most {KEPT} MiB more than before. {goals}",
            *(f"- {fault}" for fault in missed),
            "",
            HEAD,
            *lines,
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, required=True, help="the program frevo")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("target/fair/run"), help="for its files")
    parser.add_argument("--port", type=int, default=4800)
    parser.add_argument("--rows", default="*", help="names of attacks, with wildcards")
    parser.add_argument("--connections", help="such as 1,16,128 (default: those of each row)")
    parser.add_argument("--out", type=pathlib.Path, help="the page to write")
    options = parser.parse_args()
    # The library tells of each connection that an attack closes.
    logging.disable(logging.CRITICAL)
    options.dir = options.dir.resolve()
    lines, missed = [], []
    print(HEAD, flush=True)
    for attack in ATTACKS:
        if not any(fnmatch.fnmatchcase(attack.name, pattern) for pattern in options.rows.split(",")):
            continue
        numbers = map(int, options.connections.split(",")) if options.connections else attack.connections
        for connections in sorted({min(number, attack.most) for number in numbers}):
            try:
                more, faulty = measure(options, attack, connections)
            except disks.Absent as absent:
                print(f"{attack.name} is left out: {absent}", file=sys.stderr)
                continue
            except (Exception, SystemExit) as fault:
                # The other rows are measured all the same.
                more, faulty = [], [f"not measured: {type(fault).__name__}: {fault}"]
            print(*more, *(f"MISSED: {fault}" for fault in faulty), sep="\n", flush=True)
            lines += more
            missed += [f"{attack.name}, {connections} connections: {fault}" for fault in faulty]
    if options.out:
        options.out.write_text(page(options, lines, missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
