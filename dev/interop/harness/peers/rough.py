"""Rough use: full disks, killed clients, changes by the host, many clients."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import time

from .. import trees
from ..model import Failure, group
from .cifs import meanwhile, script
from .clients import python
from .smbclient import MIB, Smbclient, holding

RUG = [
    "removed-while-open",
    "replaced-before-delete-on-close",
    "truncated-while-open",
    "directory-renamed",
    "directories-swapped",
    "case-changed",
    "directory-becomes-link-out",
    "removed-while-listed",
    "all-removed",
]
CROWD = 60


@contextlib.contextmanager
def small_disk(path, megabytes):
    """A directory with a small file system of its own."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=777", "small", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=False)
        path.rmdir()


@group("smbclient/rough")
def smbclient_rough(ctx):
    """A full disk, clients killed during a transfer, 60 clients at once."""
    client = Smbclient(ctx, holding("SMB3_11", "SMB3_11"))
    ten, twenty = trees.fill(ctx.work / "ten", 10 * MIB, 30), trees.fill(ctx.work / "twenty", 20 * MIB, 31)
    with ctx.check("disk-full"), small_disk(ctx.server.path / "small", 24) as disk:
        client.run(f'put "{ten}" small\\ten')
        client.refused("NT_STATUS_DISK_FULL", f'put "{twenty}" small\\twenty')
        trees.same_file(ten, disk / "ten")
        client.run(f'get small\\ten "{ctx.work}/back"', "del small\\twenty", f'put "{ten}" small\\again')
        trees.same_file(ten, ctx.work / "back")
        trees.same_file(ten, disk / "again")
    big = trees.big_file(100 * MIB)
    for name, command in {"put": f'put "{big}" cut.bin', "get": f'get cut.bin "{ctx.work}/cut.bin"'}.items():
        with ctx.check(f"killed-in-{name}"):
            killed(ctx, client, command, ctx.server.path / "cut.bin" if name == "put" else ctx.work / "cut.bin")
            # The server has closed the handles of the killed client: its files can be deleted and
            # made again.
            patiently(lambda: client.run("del cut.bin"))
            client.run(f'put "{big}" cut.bin')
            trees.same_file(big, ctx.server.path / "cut.bin")
    with ctx.check("crowd"):
        source = trees.fill(ctx.work / "crowd", 2 * MIB + 7, 32)

        def one(number):
            client.run(
                f"mkdir {number}",
                f'put "{source}" {number}\\own',
                f'put "{source}" shared',
                f'get {number}\\own "{ctx.work}/own {number}"',
                "ls",
                f"rename {number}\\own {number}\\mine",
            )
            trees.same_file(source, ctx.work / f"own {number}")
            trees.same_file(source, ctx.server.path / str(number) / "mine")

        with concurrent.futures.ThreadPoolExecutor(CROWD) as pool:
            for done in [pool.submit(one, number) for number in range(CROWD)]:
                done.result()
        trees.same_file(source, ctx.server.path / "shared")


def killed(ctx, client, command, grows):
    """Runs an smbclient and kills it as soon as the file `grows`."""
    server = ctx.server
    child = subprocess.Popen(
        server.smbclient(command, options=client.options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while child.poll() is None and not (grows.exists() and grows.stat().st_size):
            time.sleep(0.001)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def patiently(act, seconds=10):
    """Repeats `work` until it succeeds or the time is over."""
    end = time.monotonic() + seconds
    while True:
        try:
            return act()
        except Failure:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@group("clients/rug")
def rug(ctx):
    """The host changes files and directories under a client's open handles (Python smbprotocol)."""
    python(ctx, "rug_peer.py", ctx.server.path, needed=RUG)


@group("cifs/rough")
def cifs_rough(ctx):
    """A full disk, and changes and links made by the host, seen through a mount."""
    with ctx.check("disk-full"), small_disk(ctx.server.path / "small", 24) as disk:
        ten, twenty = trees.fill(ctx.work / "ten", 10 * MIB, 33), trees.fill(ctx.work / "twenty", 20 * MIB, 34)
        output = script(
            ctx,
            "",
            f"""
            cp {ten} small/ten; sync small/ten
            if dd if={twenty} of=small/twenty bs=1M conv=fsync 2>$SMB_MNT/said; then echo it all fitted; exit 1; fi
            cat said; rm said; cmp {ten} small/ten; rm small/twenty
            cp {ten} small/again; sync small/again; cmp {ten} small/again""",
        )
        if "No space left on device" not in output:
            raise Failure(f"wrong error: {output.strip()[-200:]}")
        trees.same_file(ten, disk / "ten")
        trees.same_file(ten, disk / "again")
    with ctx.check("changes-by-the-host"):
        share = ctx.server.path
        (share / "dir").mkdir()
        trees.fill(share / "dir/file", 100_000, 35)
        (share / "gone").write_bytes(b"soon gone\n")

        def change():
            os.rename(share / "dir", share / "moved")
            os.unlink(share / "gone")
            (share / "came").write_bytes(b"new\n")

        meanwhile(
            ctx,
            """
            exec 3<>dir/file 4<gone; head -c 10 <&3 >/dev/null; cat gone; ready
            sleep 1.5  # as long as attributes are believed
            printf tail >&3; exec 3>&-; cat <&4; exec 4<&-
            [ ! -e dir ] && [ ! -e gone ] && [ "$(cat came)" = new ] && [ "$(ls moved)" = file ]
            echo more >>moved/file""",
            change,
        )
        data = (share / "moved/file").read_bytes()
        if data[10:14] != b"tail" or not data.endswith(b"more\n") or len(data) != 100_005:
            raise Failure(f"wrong content: {len(data)} bytes, {data[8:16]!r}...{data[-6:]!r}")
    with ctx.check("links-of-the-host"):
        links, outside = ctx.server.path / "links", ctx.work / "outside"
        (links / "dir").mkdir(parents=True)
        outside.mkdir()
        (outside / "kept").write_bytes(b"kept\n")
        (links / "file").write_bytes(b"content\n")
        for name, target in {
            "near": "file",
            "dir/up": "../file",
            "to-dir": "dir",
            "dangling": "no such",
            "out": str(outside),
        }.items():
            (links / name).symlink_to(target)
        script(
            ctx,
            "",
            f"""
            cd links; ls -la; [ "$(readlink near)" = file ] && [ "$(readlink out)" = {outside} ]
            [ "$(cat near)" = content ] && [ "$(cat dir/up)" = content ] && [ "$(cat to-dir/up)" = content ]
            [ -L dangling ] && [ ! -e dangling ]
            # The script does not rename links: cifs.ko of Linux 6.1 cannot.
            printf more >>near; rm near; rm -r to-dir out dangling dir; [ "$(ls)" = file ]""",
        )
        if (links / "file").read_bytes() != b"content\nmore" or not (outside / "kept").exists():
            raise Failure("the target of a link was changed")
