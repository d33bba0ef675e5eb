"""The rate of a copy while its node is pulled: the picture of docs/cluster.md."""

import contextlib
import os
import subprocess
import time

from ..cluster import FLOATING, PASSWORD, SHARE, USER, Cluster, ip, within
from ..model import ROOT, Failure, group

PICTURE = ROOT / "docs/images/pulled-node.svg"
# The file, the limit of the client, and the second after the begin at which the plug is pulled.
MEGABYTES, LIMIT, PULLED = 600, 50, 4.0
# Seconds between two looks at the bytes that have arrived, and of each part of the curve.
LOOK, PART = 0.02, 0.2
COLOURS = {"put": "#0072b2", "get": "#e69f00"}


def arrived(folder):
    """The bytes of the files in a folder: a copy has another name until it is whole, and its length is set first."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                total += 512 * entry.stat(follow_symlinks=False).st_blocks
            except FileNotFoundError:
                continue
    return total


def copied(cluster, words, folder):
    """Copies into a folder, and pulls the plug of the owner meanwhile. Returns the owner, and the bytes at times."""
    owner = cluster.owner() or cluster.new_owner(None)
    begin = time.monotonic()
    copy = subprocess.Popen(
        within("c1", cluster.program, *words, "--bwlimit", f"{LIMIT}M"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "FREVO_PASSWORD": PASSWORD},
    )
    looks, is_pulled = [(0.0, 0)], False
    try:
        while copy.poll() is None:
            now = time.monotonic() - begin
            if now > 90:
                raise Failure(f"{words[0]} does not end")
            looks.append((now, arrived(folder)))
            if now >= PULLED and not is_pulled:
                ip(f"link set v-{owner.name} down")
                is_pulled = True
            time.sleep(LOOK)
    finally:
        if copy.poll() is None:
            copy.kill()
        said = copy.communicate()[0]
        cluster.ctx.log.write(said)
    if copy.returncode or not is_pulled:
        raise Failure(f"{words[0]} ended with status {copy.returncode}: {said.strip()[-200:]}")
    looks.append((time.monotonic() - begin, arrived(folder)))
    return owner, looks


def rates(looks):
    """The megabytes of each second, in parts of `PART` seconds."""
    end, at, found = looks[-1][0], 0, []
    marks = []
    for part in range(int(end / PART) + 1):
        while at + 1 < len(looks) and looks[at + 1][0] <= part * PART:
            at += 1
        marks.append(looks[at][1])
    for part, (before, after) in enumerate(zip(marks, marks[1:], strict=False)):
        found.append(((part + 0.5) * PART, (after - before) / PART / 1e6))
    return found


def stall(looks):
    """The longest time after the pull in which no byte arrived."""
    longest, last, size = 0.0, PULLED, None
    for moment, now in looks:
        if size is not None and now != size and moment > PULLED:
            longest = max(longest, moment - last)
        if now != size:
            last, size = max(moment, PULLED), now
    return longest


def picture(curves):
    """The picture of curves by name, in the manner of `frevo-bench cable`."""
    left, top, width, height = 60.0, 40.0, 680.0, 240.0
    seconds = max(int(points[-1][0]) + 1 for points in curves.values())
    most = 50 * (int(max(rate for points in curves.values() for _, rate in points) / 50) + 1)
    x = lambda moment: left + width * moment / seconds  # noqa: E731
    y = lambda rate: top + height * (1 - rate / most)  # noqa: E731
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 320" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="60" y="20" font-size="14">Rate of a copy by frevo, MB/s (limited to {LIMIT} MiB/s)</text>',
    ]
    for rate in range(0, most + 1, 50):
        lines.append(f'<line x1="60" y1="{y(rate):.1f}" x2="740" y2="{y(rate):.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="54" y="{y(rate) + 4:.1f}" text-anchor="end">{rate}</text>')
    for second in range(seconds + 1):
        lines.append(f'<text x="{x(second):.1f}" y="298" text-anchor="middle">{second}</text>')
    lines.append('<text x="740" y="314" text-anchor="end">seconds</text>')
    pulled = f'x1="{x(PULLED):.1f}" y1="40" x2="{x(PULLED):.1f}" y2="280"'
    lines.append(f'<line {pulled} stroke="#444" stroke-dasharray="4 3"/>')
    lines.append(f'<text x="{x(PULLED) + 6:.1f}" y="52">its node is pulled</text>')
    for at, (name, points) in enumerate(curves.items()):
        path = " ".join(f"{x(moment):.1f},{y(rate):.1f}" for moment, rate in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>')
        place = 520 + 110 * at
        lines.append(f'<rect x="{place}" y="10" width="10" height="10" fill="{COLOURS[name]}"/>')
        lines.append(f'<text x="{place + 16}" y="20">frevo {name}</text>')
    return "\n".join([*lines, "</svg>", ""])


@contextlib.contextmanager
def in_memory(cluster):
    """A cluster whose files are in memory: one disk for three members of etcd and a copy makes etcd late."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3g", "files", cluster.folder], check=True)
    try:
        with cluster:
            yield cluster
    finally:
        subprocess.run(["umount", "-l", cluster.folder], check=True)


def again(cluster, owner):
    """Plugs a node in again, whose server and mount the next owner has fenced."""
    cluster.new_owner(owner)
    owner.kill()
    ip(f"link set v-{owner.name} up")
    owner.start()


@group("cluster/copy-plot", named_only=True)
def copy_plot(ctx):
    """The rate of `frevo put` and `frevo get` while their node is pulled. `CLUSTER_PLOT=yes` renews the picture."""
    with ctx.check("copy-plot"), in_memory(Cluster(ctx)) as cluster:
        source, target = cluster.folder / "source", cluster.folder / "target"
        target.mkdir()
        with open(source, "wb") as file:
            for _ in range(MEGABYTES):
                file.write(os.urandom(1 << 20))
        there = cluster.folder / "there"
        there.mkdir()
        url = f"smb://{USER}@{FLOATING}/{SHARE}/there/copy"
        curves, words = {}, []
        for name, command, folder in (
            ("put", ["put", source, url], there),
            ("get", ["get", url, target / "copy"], target),
        ):
            owner, looks = copied(cluster, command, folder)
            status, shown = ctx.command("cmp", source, folder / "copy")
            if status:
                raise Failure(f"{name}: {shown.strip()}")
            curves[name] = rates(looks)
            words.append(f"{name}: no byte for {stall(looks):.2f} s of {looks[-1][0]:.1f} s")
            again(cluster, owner)
        ctx.add("copy-plot-figures", "pass", 0.0, "; ".join(words))
        if os.environ.get("CLUSTER_PLOT"):
            PICTURE.write_text(picture(curves))
