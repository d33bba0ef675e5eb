"""Spotlight: rpc.mdssvc of smbtorture and mdsearch of Samba 4.25; smbd and its backend without an index beside it."""

import time

from ..model import Failure, Skip, group
from ..servers import HERE
from .rpc import run_suite

SAMBA = "4.25"
SHARE, OTHER = "spotl", "nospotl"
# Folders and files of the share, and bytes of each file.
FILES = {
    "plan.txt": 10,
    "Plan B.pdf": 2000,
    "sub/holiday plans.jpg": 30,
    "sub/deep/plan-2026.TXT": 40,
    "sub/übung.txt": 50,
    "other.bin": 5000,
}
# A query, the folder that it is made in, and what it finds.
QUERIES = {
    "name": ('kMDItemFSName=="plan*"c', "", {"plan.txt", "Plan B.pdf", "sub/deep/plan-2026.TXT"}),
    "case": ('kMDItemFSName=="plan*"', "", {"plan.txt", "sub/deep/plan-2026.TXT"}),
    "word": ('*=="plan*"cdw', "", {"plan.txt", "Plan B.pdf", "sub/deep/plan-2026.TXT", "sub/holiday plans.jpg"}),
    "marks": ('kMDItemFSName=="ubung*"cd', "", {"sub/übung.txt"}),
    "within": ('kMDItemDisplayName=="*lan*.?xt"c', "", {"plan.txt", "sub/deep/plan-2026.TXT"}),
    "size": ("kMDItemFSSize >= 2000", "", {"Plan B.pdf", "other.bin"}),
    "kind": ('kMDItemContentTypeTree=="public.image"', "", {"sub/holiday plans.jpg"}),
    "folders": ('kMDItemContentType=="public.folder"', "", {"many", "sub", "sub/deep"}),
    "dates": (
        'kMDItemFSName=="*.pdf" && InRange(kMDItemFSContentChangeDate,$time.now(-3600),$time.now(+3600))',
        "",
        {"Plan B.pdf"},
    ),
    "long-ago": ('kMDItemFSName=="*" && kMDItemFSContentChangeDate<$time.iso(2020-01-01T00:00:00Z)', "", set()),
    "not": ('kMDItemFSName=="*.*" && !(kMDItemFSName=="*plan*"c) && kMDItemFSSize>100', "", {"other.bin"}),
    "folder": ('kMDItemFSName=="*plan*"c', "sub", {"sub/deep/plan-2026.TXT", "sub/holiday plans.jpg"}),
}


def mdsearch(ctx, query, folder="", share=SHARE):
    """Returns (status, output) of a search."""
    server = ctx.server
    program = [HERE / "newer-samba", "-x", SAMBA, "mdsearch"]
    place = [f"--path={folder}"] if folder else []
    account = f"{server.user}%{server.password}"
    port = f"client smb transports=tcp:{server.port}"
    return ctx.command(*program, *place, "-U", account, f"--option={port}", server.address, share, query, timeout=60)


def found(ctx, query, folder=""):
    """Returns the paths that a search finds."""
    status, output = mdsearch(ctx, query, folder)
    if status:
        raise Failure(f"{query}: {output}")
    return {line for line in output.splitlines() if line}


@group("spotlight/torture", profile="spotlight", samba=SAMBA)
def torture(ctx):
    """smbtorture's rpc.mdssvc: handles, shares without Spotlight, and messages that lie."""
    names = {
        "spotlight_share": SHARE,
        "no_spotlight_share": OTHER,
        "no_spotlight_localdir": ctx.server.directory / OTHER,
    }
    options = [f"--option=torture:{name}={value}" for name, value in names.items()]
    run_suite(ctx, "rpc.mdssvc", f"ncacn_np:{ctx.server.address}", options=options)


@group("spotlight/mdsearch", profile="spotlight", samba=SAMBA)
def search(ctx):
    """mdsearch by names, words, sizes, dates and types, in the share and in a folder, and 300 files in pages."""
    root = ctx.server.directory / SHARE
    for path, size in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x" * size)
    (root / "many").mkdir()
    many = {f"many/page {number}.dat" for number in range(300)}
    for path in many:
        (root / path).touch()
    if ctx.server.kind == "smbd":
        with ctx.check("name"):
            if found(ctx, 'kMDItemFSName=="plan*"c'):
                raise Failure("smbd has an index")
            raise Skip("smbd has no index here: it answers that nothing is found")
        return
    until = time.monotonic() + 10
    while len(found(ctx, 'kMDItemFSName=="page *"')) < len(many) and time.monotonic() < until:
        time.sleep(0.2)
    for name, (query, folder, expected) in QUERIES.items():
        with ctx.check(name):
            if (paths := found(ctx, query, folder)) != expected:
                raise Failure(f"{query} in {folder or 'the share'}: {sorted(paths)}")
    with ctx.check("pages"):
        if (paths := found(ctx, 'kMDItemFSName=="page *"')) != many:
            raise Failure(f"{len(paths)} files")
    with ctx.check("not-understood"):
        status, output = mdsearch(ctx, 'kMDItemFSName=="plan')
        if not status:
            raise Failure(output)
    with ctx.check("other-share"):
        status, output = mdsearch(ctx, 'kMDItemFSName=="plan*"', share=OTHER)
        if not status:
            raise Failure(output)
