"""`frevo mount`: programs use a FUSE mount like a local folder; the server's disk must show the same."""

import os
import shutil

from ...model import group
from .close_to_open import closed_is_seen, read_only
from .command import background, helpful
from .failures import cancelled, hung, killed
from .files import attributes, maps, names, open_files, posix, sparse, tree
from .fixture import equal, mounted, no_fuse, refused
from .shared import crowd, emptied, flocks, leased, locks, seen
from .workloads import programs, run_fsx


@group("client/mount")
def mount(ctx):
    """frevo mount: files, names, maps, locks, leases; with --full git, cargo and a killed server"""
    there = ctx.server.path
    if why := no_fuse():
        ctx.add("fuse", "skip", 0.0, why)
        return
    with ctx.check("errors"):
        helpful(ctx)
    with ctx.check("mount-and-unmount"), mounted(ctx) as here:
        with ctx.check("tree"):
            tree(ctx, here, there)
        with ctx.check("names"):
            names(here, there)
        with ctx.check("attributes"):
            attributes(here, there)
        with ctx.check("open-files"):
            open_files(here, there)
        with ctx.check("maps"):
            maps(here, there)
        with ctx.check("ranges"):
            sparse(here, there)
        if ctx.server.kind == "frevo":
            with ctx.check("posix"):
                posix(here, there)
        with ctx.check("crowd"):
            crowd(ctx, [here], there, 15 if ctx.full else 4)
        with ctx.check("fsx"):
            run_fsx(ctx, here, 20_000 if ctx.full else 1_500)
        if ctx.full:
            programs(ctx, here, there)
        (here / "unsent").write_bytes(b"")
        with open(here / "last", "wb", buffering=0) as last:
            last.write(b"gathered")
    with ctx.check("unmount-writes"):
        equal((there / "last").read_bytes(), b"gathered", "on the server after the unmount")
    with (
        ctx.check("two-mounts"),
        mounted(ctx, "first", "--attr-timeout", "0") as one,
        mounted(ctx, "second", "--attr-timeout", "0") as two,
    ):
        seen(one, two)
        with ctx.check("locks"):
            locks(one, two)
        with ctx.check("flock"):
            flocks(one, two)
    with ctx.check("dir-leases"), mounted(ctx, "third") as one, mounted(ctx, "fourth") as two:
        leased(one, two)
        emptied(one, two)
    with ctx.check("background"):
        background(ctx)
    with ctx.check("read-only"), mounted(ctx, "reading", "-r") as here:
        equal((here / "last").read_bytes(), b"gathered", "read")
        refused(30, lambda: (here / "new").write_bytes(b""))
    with ctx.check("no-posix"), mounted(ctx, "mapped", "--no-posix", "--file-mode", "0640") as here:
        for left in ("last", "unsent"):
            os.unlink(here / left)
        names(here, there)
        (here / "f").write_bytes(b"f")
        equal(os.stat(here / "f").st_mode & 0o777, 0o640, "the mode that was asked for")
        os.unlink(here / "f")
        with ctx.check("read-only-files"):
            read_only(here, there)
    if ctx.server.kind == "frevo":
        with ctx.check("close-to-open"), mounted(ctx, "writing") as one, mounted(ctx, "opening") as two:
            closed_is_seen(one, two, 2_500 if ctx.full else 200)
    with ctx.check("crowd-two-mounts"), mounted(ctx, "fifth") as one, mounted(ctx, "sixth") as two:
        crowd(ctx, [one, two], there, 15 if ctx.full else 4)
    with ctx.check("no-cache"), mounted(ctx, "uncached", "--no-cache") as here:
        data = os.urandom(400_000)
        (here / "plain").write_bytes(data)
        equal((here / "plain").read_bytes() == data and (there / "plain").read_bytes() == data, True, "the bytes")
    if ctx.full and ctx.server.kind == "frevo":
        with ctx.check("server-killed"):
            killed(ctx)
    if ctx.server.kind == "frevo":
        with ctx.check("server-hangs"):
            hung(ctx)
        if shutil.which("bindfs"):
            with ctx.check("read-cancelled"):
                cancelled(ctx)
        else:
            ctx.add("read-cancelled", "skip", 0.0, "bindfs is not installed")
