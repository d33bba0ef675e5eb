"""Frevo's client, interrupted in the middle of a tree, or with a disk that fills up.

Each time: one message, the right exit code, no partial file under its final name, and the next run continues.
"""

import os
import signal
import subprocess

from .. import trees
from ..model import Failure, group
from .frevo_client import Client
from .outage import files, no_leftovers
from .rough import small_disk

MIB = 1 << 20


def fill(root, small, large):
    """`small` files of up to 60 kB and `large` ones of 15 MiB."""
    for at in range(small):
        folder = root / f"d{at % 13}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{at}").write_bytes(os.urandom(20_000 + at * 131 % 40_000))
    for at in range(large):
        folder = root / f"l{at % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"large{at}").write_bytes(os.urandom(15 * MIB))


def whole_ones(source, copy):
    """Fails unless every finished file of `copy` equals its source; returns their number."""
    count = 0
    for path in copy.rglob("*"):
        if path.is_file() and not path.name.endswith(".frevo-part"):
            count += 1
            if path.read_bytes() != (source / path.relative_to(copy)).read_bytes():
                raise Failure(f"{path.relative_to(copy)} is incomplete: {path.stat().st_size} bytes")
    return count


def one_sentence(status, output, wanted, words):
    said = [line for line in output.splitlines() if line.startswith("frevo: ")]
    if status != wanted or len(said) != 1 or words not in said[0]:
        raise Failure(f"wanted {wanted}, {words!r}; got {status}: {output.strip()[-300:]}")


def interrupted(ctx, client, verb, source, copy, arguments):
    """Presses Ctrl-C when a third of the files are copied, then runs the command again."""
    child = subprocess.Popen(
        [client.program, *verb.split(), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ctx.work,
        env={**os.environ, "FREVO_PASSWORD": ctx.server.password},
    )
    wanted = files(source) // 3
    while child.poll() is None and files(copy) < wanted:
        pass
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    ctx.log.write(f"$ frevo {verb}\n{output}[status {child.returncode}]\n")
    one_sentence(child.returncode, output, 130, "interrupted")
    count = whole_ones(source, copy)
    if not 0 < count < files(source):
        raise Failure(f"{count} of {files(source)} files were copied: nothing was interrupted")
    client.run(*verb.split(), *arguments)
    trees.same_tree(source, copy)
    no_leftovers(copy)


@group("client/interrupted")
def ctrl_c(ctx):
    """Ctrl-C during put -r, sync and get -r: status 130, no partial file; the next run continues."""
    client, there = Client(ctx, []), ctx.server.path
    tree = ctx.work / "tree"
    fill(tree, 1500, 6)
    with ctx.check("put -r"):
        interrupted(ctx, client, "put -r", tree, there / "tree", ["tree", client.url()])
    with ctx.check("sync up"):
        interrupted(ctx, client, "sync", tree, there / "synced", ["tree", client.url("synced")])
    (ctx.work / "back").mkdir()
    with ctx.check("get -r"):
        interrupted(ctx, client, "get -r", tree, ctx.work / "back/tree", [client.url("tree"), "back"])
    with ctx.check("sync down"):
        interrupted(ctx, client, "sync", tree, ctx.work / "synced", [client.url("tree"), "synced"])


def filled(client, verb, source, disk, copy, arguments, words):
    """Runs a command on a disk that fills up, enlarges the disk and runs the command again."""
    one_sentence(*client.status(*verb.split(), *arguments), 1, words)
    count = whole_ones(source, copy)
    if count >= files(source):
        raise Failure("the disk did not fill up")
    no_leftovers(disk)
    subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
    client.run(*verb.split(), *arguments)
    trees.same_tree(source, copy)
    no_leftovers(disk)


@group("client/disk-full")
def disk_full(ctx):
    """A disk fills up during put -r, sync and get -r: one message, no partial file; a second run completes."""
    client, there = Client(ctx, []), ctx.server.path
    for kind, small, large in (("small files", 1200, 0), ("large files", 40, 4)):
        tree = ctx.work / kind.split()[0]
        fill(tree, small, large)
        for verb, to in (("put -r", "small"), ("sync", f"small/{tree.name}")):
            with ctx.check(f"{verb}, {kind}"), small_disk(there / "small", 24) as disk:
                filled(
                    client, verb, tree, disk, disk / tree.name, [tree, client.url(to)], "no space left on the server"
                )
        client.run("put", "-r", tree, client.url("source"))
        for verb, to in (("get -r", ""), ("sync", "source")):
            with ctx.check(f"{verb} down, {kind}"), small_disk(ctx.work / "small disk", 24) as disk:
                filled(
                    client,
                    verb,
                    tree,
                    disk,
                    disk / "source",
                    [client.url("source"), disk / to],
                    "No space left on device",
                )
        client.run("rm", "-r", client.url("source"))
