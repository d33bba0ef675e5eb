"""The page of a campaign's results."""

import os
import platform

from .cluster import percentiles

HEAD = """# A cluster that is disturbed thousands of times

Made by `dev/interop/cluster-campaign`, which appends to its results as long as it runs, and by
`dev/interop/cluster-campaign --page docs/benchmarks/cluster-campaign.md`.

Three nodes, three members of etcd and two clients are in network namespaces of one machine; each node reaches one
folder, in memory, by a bindfs of its own (`fence = "fuse"`, a lease of 2 s). Eight writers (`frevo-cluster-load`)
have persistent handles and locks, and a program works beside them: fsx or SQLite on `frevo mount`, or `frevo put` of
a tree.

| disturbance | |
|---|---|
| kill | kill -9 of the owner, which is started again after the next owner serves |
| partition, a node fails | the owner is cut off from etcd (both directions, or one), from everybody, from its storage |
| partition, all go on | for 1.5 s it is cut off from clients (both directions, or one), or from one member of etcd |
| pause | SIGSTOP of the owner for 10 s. The next owners are killed meanwhile (these kills count as kills) |
| move | `frevo cluster move` to another node |

After each one, all eight writers must go on before the next one begins. What must never be found:

- **Writes lost**: each block is read before it is written again, and at the end from the folder itself; it must have
  the bytes of its last acknowledged write.
- **Locks or handles lost**: another client tries the lock of each writer all the time, and must find it held. Writers
  use one handle for a whole life of the cluster, and a request with a lost handle fails.
- **Bytes of a fenced node**: before a paused or cut-off node goes on, the program of its mount, which carries all its
  writes, must have ended, and stay so afterwards.
- **Errors**: each failed request of a writer, each failed program, each panic in a log, each node that keeps a core.
"""


def page(rows, wanted):
    """Returns the page as text."""
    total = {}
    for row in rows:
        for name, number in row["counts"].items():
            total[name] = total.get(name, 0) + number
    load = {name: sum(row.get("load", {}).get(name, 0) for row in rows) for name in ("writes", "compared", "locks")}
    held = sum(row.get("load", {}).get("held", 0) for row in rows)
    faults = [row for row in rows if row["fault"]]
    text = HEAD + "\n## Reached\n\n"
    text += "| disturbance | wanted | made | longest time without an acknowledged write of a writer |\n"
    text += "|---|---:|---:|---|\n"
    for kind, number in wanted.items():
        found = [stall for row in rows for stall in row.get("stalls", {}).get(kind, [])]
        words = "p50 {:.2f} s, p99 {:.2f} s".format(*percentiles(found)) if found else "-"
        text += f"| {kind} | {number:,} | {total.get(kind, 0):,} | {words} |\n"
    parts = sorted(name for name in total if name.startswith("partition-"))
    if parts:
        text += "\nPartitions: " + ", ".join(f"{name.removeprefix('partition-')} {total[name]:,}" for name in parts)
        text += f". Kills while another node was paused: {total.get('kill-in-pause', 0):,}.\n"
    text += f"""
| | |
|---|---:|
| lives of a cluster | {len(rows):,} |
| acknowledged writes | {load["writes"]:,} |
| blocks compared before they were written again | {load["compared"]:,} |
| locks taken and released | {load["locks"]:,} |
| locks tried by another client, and found held | {held:,} |
| nodes fenced, whose mount was looked at | {sum(row["fenced"] for row in rows):,} |
"""
    for name in sorted({row["program"] for row in rows}):
        done = sum(row.get("done", 0) for row in rows if row["program"] == name)
        text += f"| times that {name} was done | {done:,} |\n"
    text += f"| **lives with a finding** | **{len(faults)}** |\n"
    for row in faults:
        text += f"\n- {row['begin']}, {row['version']}, with {row['program']}: {row['fault']}"
    return text + ("\n" if faults else "") + conditions(rows)


def conditions(rows):
    """Says when and on which machine it ran."""
    if not rows:
        return ""
    begins = sorted(row["begin"] for row in rows)
    versions = ", ".join(sorted({row["version"] for row in rows}))
    beside = max(row["side_by_side"] for row in rows)
    hours = sum(row["seconds"] for row in rows) / 3600
    kernel = platform.release().split("-")[0]
    return f"""
## Conditions

From {begins[0]} to {begins[-1]}; versions {versions}. {os.cpu_count()} processors, Linux {kernel}; up to
{beside} clusters side by side, {hours:.1f} hours of clusters in all. Other work ran on the machine, so the times are
upper bounds: `dev/interop/run --only 'cluster/*'` measures.
"""
