"""Samba's smbclient with every dialect, signing algorithm and cipher.

The client accepts only its variant and checks the server's choice: if it works, the
variant was in use.
"""

import os
import re
import subprocess
import time

from .. import trees
from ..model import Failure, group

MIB = 1 << 20


def holding(low, high, *options):
    """Returns smbclient's arguments for a range of dialects and further smb.conf options."""
    args = [f"--option=client min protocol={low}", f"--option=client max protocol={high}"]
    return args + [o if o.startswith("--") else f"--option={o}" for o in options]


SIGNED, SEALED = "--client-protection=sign", "--client-protection=encrypt"
# Each entry: name, server profile, smbclient arguments.
VARIANTS = [
    ("3.1.1-default", "default", holding("SMB3_11", "SMB3_11")),
    (
        "3.1.1-signed-AES-128-GMAC",
        "default",
        holding("SMB3_11", "SMB3_11", SIGNED, "client smb3 signing algorithms=AES-128-GMAC"),
    ),
    (
        "3.1.1-signed-AES-128-CMAC",
        "default",
        holding("SMB3_11", "SMB3_11", SIGNED, "client smb3 signing algorithms=AES-128-CMAC"),
    ),
    (
        "3.1.1-signed-HMAC-SHA256",
        "default",
        holding("SMB3_11", "SMB3_11", SIGNED, "client smb3 signing algorithms=HMAC-SHA256"),
    ),
    *[
        (
            f"3.1.1-sealed-{cipher}",
            "default",
            holding("SMB3_11", "SMB3_11", SEALED, f"client smb3 encryption algorithms={cipher}"),
        )
        for cipher in ("AES-128-GCM", "AES-128-CCM", "AES-256-GCM", "AES-256-CCM")
    ],
    ("3.1.1-sealed-by-server", "as-shipped", holding("SMB3_11", "SMB3_11")),
    ("3.1.1-signed-by-server", "signed-only", holding("SMB3_11", "SMB3_11")),
    ("3.0.2", "old-dialects", holding("SMB3_02", "SMB3_02")),
    ("3.0.2-sealed", "old-dialects", holding("SMB3_02", "SMB3_02", SEALED)),
    ("3.0", "old-dialects", holding("SMB3_00", "SMB3_00")),
    ("2.1", "old-dialects", holding("SMB2_10", "SMB2_10")),
    ("2.1-signed", "old-dialects", holding("SMB2_10", "SMB2_10", SIGNED)),
    ("2.0.2", "old-dialects", holding("SMB2_02", "SMB2_02")),
]
# The variants that move the large file even in a quick run.
LARGE = {"3.1.1-default", "3.1.1-sealed-AES-128-GCM", "3.1.1-signed-AES-128-CMAC"}


class Smbclient:
    """smbclient with one variant's arguments, run once per script of commands."""

    def __init__(self, ctx, options):
        self.ctx, self.options = ctx, options

    def status(self, *script, share=None, user=None, password=None, timeout=120, cwd=None):
        """Runs commands; returns (status, output).  smbclient continues after a failed command."""
        command = self.ctx.server.smbclient(*script, share=share, user=user, password=password, options=self.options)
        return self.ctx.command(*command, timeout=timeout, cwd=cwd)

    def run(self, *script, **more):
        """Runs commands that must all succeed."""
        status, output = self.status(*script, **more)
        errors = [line for line in output.splitlines() if re.search(r"\bNT_STATUS_[A-Z]|^Error ", line)]
        if status or errors:
            raise Failure(errors[0] if errors else f"status {status}: {output.strip()[-200:]}")
        return output

    def refused(self, status_name, *script, **more):
        """Runs commands that must fail with this NTSTATUS."""
        _, output = self.status(*script, **more)
        if status_name not in output:
            raise Failure(f"wanted {status_name}, got: {output.strip()[-200:] or 'success'}")

    def names(self, mask="*"):
        """Returns the names that `ls` shows."""
        found = set()
        for line in self.run(f'ls "{mask}"').splitlines():
            m = re.match(r"  (.+?)\s+([ADHNRS]*)\s+(\d+)  \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}$", line)
            if m and m[1] not in (".", ".."):
                found.add(m[1])
        return found


def listing(ctx, client):
    with ctx.check("list-shares"):
        server = ctx.server
        status, output = ctx.command(
            "smbclient",
            "-L",
            server.address,
            "-p",
            server.port,
            "-U",
            f"{server.user}%{server.password}",
            *client.options,
        )
        shares = set(re.findall(r"^\s+(\S+)\s+(?:Disk|IPC)\b", output, re.M))
        if status or not {server.share, server.share2, "IPC$"} <= shares:
            raise Failure(f"status {status}, shares {sorted(shares)}")
    with ctx.check("list-shares-with-rpcclient"):
        # Ask SRVSVC for the list of shares at the two levels that clients use, and for the details
        # of each share.
        status, output = ctx.command(
            "rpcclient",
            server.address,
            "-p",
            server.port,
            "-U",
            f"{server.user}%{server.password}",
            *client.options,
            "-c",
            f"netshareenum; netshareenumall; netsharegetinfo {server.share}; srvinfo",
        )
        shares = re.findall(r"^netname: (\S+)", output, re.M)
        if status or shares.count(server.share) != 3 or shares.count(server.share2) != 2:
            raise Failure(f"status {status}, shares {shares}: {output.strip()[-150:]}")
    with ctx.check("wrong-password"):
        client.refused("NT_STATUS_LOGON_FAILURE", "ls", password="no such word")
    with ctx.check("wrong-share"):
        client.refused("NT_STATUS_BAD_NETWORK_NAME", "ls", share="no-such-share")
    with ctx.check("volume-size"):
        output = client.run("ls")
        if not re.search(r"[1-9]\d* blocks of size \d+\. \d+ blocks available", output):
            raise Failure(f"no volume size in {output[-120:]!r}")


def transfer(ctx, client, sizes):
    for path in sizes:
        big = path.stat().st_size > 64 * MIB
        with ctx.check("put-get-100MiB" if big else f"put-get-{path.stat().st_size}"):
            client.run(f'put "{path}" moved.bin', f'get moved.bin "{ctx.work}/back.bin"', timeout=300)
            trees.same_file(path, ctx.server.path / "moved.bin")
            trees.same_file(path, ctx.work / "back.bin")
            client.run("del moved.bin")
            if os.path.exists(ctx.server.path / "moved.bin"):
                raise Failure("deleted, but still on the server's disk")
    with ctx.check("overwrite-shorter"):
        long, short = trees.fill(ctx.work / "long", 300_000, 1), trees.fill(ctx.work / "short", 1_234, 2)
        client.run(f'put "{long}" over.bin', f'put "{short}" over.bin')
        trees.same_file(short, ctx.server.path / "over.bin")
    with ctx.check("resume-partial-get"):
        source = trees.fill(ctx.server.path / "resume.bin", 3 * MIB + 1, 3)
        (ctx.work / "resume.bin").write_bytes(source.read_bytes()[:MIB])
        client.run(f'reget resume.bin "{ctx.work}/resume.bin"')
        trees.same_file(source, ctx.work / "resume.bin")


def names(ctx, client):
    with ctx.check("tree-mput-mget"):
        source = trees.named_tree(ctx.work / "tree")
        back = ctx.work / "tree-back"
        back.mkdir()
        client.run("mkdir tree", "cd tree", "prompt off", "recurse on", f'lcd "{source}"', "mput *")
        trees.same_tree(source, ctx.server.path / "tree")
        client.run("cd tree", "prompt off", "recurse on", f'lcd "{back}"', "mget *")
        trees.same_tree(source, back)
    with ctx.check("each-name"):
        small = trees.fill(ctx.work / "small", 321, 4)
        directory = ctx.server.path / "each"
        client.run("mkdir each", "cd each", *[f'put "{small}" "{n}"' for n in trees.NAMES])
        disk = set(os.listdir(directory))
        if disk != set(trees.NAMES):
            raise Failure(f"on the disk {sorted(disk ^ set(trees.NAMES))[:3]} differ")
        listed = client.names("each/*")
        if {n.strip() for n in listed} != {n.strip() for n in trees.NAMES}:
            raise Failure(f"listed {sorted(listed ^ set(trees.NAMES))[:3]} differ")
        client.run("cd each", *[f'del "{n}"' for n in trees.NAMES if "[" not in n and "*" not in n])
        if left := [n for n in os.listdir(directory) if "[" not in n]:
            raise Failure(f"not deleted: {left[:3]}")
    with ctx.check("case-is-kept-and-ignored"):
        trees.fill(ctx.server.path / "Case Kept ÄÖ.Txt", 500, 5)
        client.run(f'get "case kEPT äö.tXT" "{ctx.work}/case"')
        trees.same_file(ctx.server.path / "Case Kept ÄÖ.Txt", ctx.work / "case")
        if "Case Kept ÄÖ.Txt" not in client.names("case*"):
            raise Failure(f"listed as {client.names('case*')}")
        client.refused("NT_STATUS_OBJECT_NAME_COLLISION", 'mkdir "CASE KEPT äö.TXT"')


def changes(ctx, client):
    path = ctx.server.path
    with ctx.check("rename"):
        source = trees.fill(path / "before.bin", 70_001, 6)
        kept = source.read_bytes()
        client.run('rename before.bin "after it.bin"')
        if source.exists() or (path / "after it.bin").read_bytes() != kept:
            raise Failure("not moved on the server's disk")
        client.run("mkdir into", 'rename "after it.bin" into\\deep.bin')
        if (path / "into/deep.bin").read_bytes() != kept:
            raise Failure("not moved to the directory")
        client.run("rename into into2", "rename into2\\deep.bin into2\\DEEP.bin")
        if os.listdir(path / "into2") != ["DEEP.bin"]:
            raise Failure(f"change of case: {os.listdir(path / 'into2')}")
    with ctx.check("rename-over-existing"):
        trees.fill(path / "a.bin", 10, 7), trees.fill(path / "b.bin", 20, 8)
        client.refused("NT_STATUS_OBJECT_NAME_COLLISION", "rename a.bin b.bin")
        client.run("rename a.bin b.bin -f")
        if (path / "a.bin").exists() or (path / "b.bin").stat().st_size != 10:
            raise Failure("not replaced on the server's disk")
    with ctx.check("mkdir-rmdir"):
        client.run("mkdir one", "mkdir one\\two")
        if not (path / "one/two").is_dir():
            raise Failure("not on the server's disk")
        client.refused("NT_STATUS_DIRECTORY_NOT_EMPTY", "rmdir one")
        client.refused("NT_STATUS_OBJECT_NAME_COLLISION", "mkdir one")
        client.run("rmdir one\\two", "rmdir one")
        if (path / "one").exists():
            raise Failure("still on the server's disk")
    with ctx.check("deltree"):
        trees.named_tree(path / "gone")
        client.run("deltree gone")
        if (path / "gone").exists():
            raise Failure(f"left on the disk: {len(trees.digest(path / 'gone'))} entries")
    with ctx.check("missing-names"):
        client.refused("NT_STATUS_OBJECT_NAME_NOT_FOUND", f'get nothing "{ctx.work}/nothing"')
        client.refused("NT_STATUS_OBJECT_PATH_NOT_FOUND", f'get "no\\such\\place" "{ctx.work}/nothing"')
        client.refused("NT_STATUS_NO_SUCH_FILE", 'ls "nothing*"')


def information(ctx, client):
    path = ctx.server.path
    with ctx.check("allinfo"):
        trees.fill(path / "info.bin", 12_345, 9)
        os.utime(path / "info.bin", (1_500_000_000, 1_500_000_000))
        output = client.run("allinfo info.bin")
        if not re.search(r"write_time:\s+Fri Jul 14 0?2:40:00 (AM )?2017", output):
            raise Failure(f"write_time in {output!r}")
        if not re.search(r"stream: \[::\$DATA\], 12345 bytes", output):
            raise Failure(f"no default stream of 12345 bytes in {output!r}")
    with ctx.check("utimes"):
        client.run("utimes info.bin -1 -1 2001:02:03-04:05:06 -1")
        if int((path / "info.bin").stat().st_mtime) != 981_173_106:
            raise Failure(f"mtime on disk is {(path / 'info.bin').stat().st_mtime}")
    with ctx.check("attributes"):
        client.run("setmode info.bin +rh")
        output = client.run("allinfo info.bin")
        if not re.search(r"attributes: \w*[RH]\w*[RH]\w*", output):
            raise Failure(f"hidden and read-only not shown: {output!r}")
        client.refused("NT_STATUS_CANNOT_DELETE", "del info.bin")
        client.run("setmode info.bin -rh", "del info.bin")
    with ctx.check("many-entries"):
        many = path / "many"
        many.mkdir()
        wanted = {f"entry number {i:05} with a name of some length" for i in range(3000)}
        for name in wanted:
            (many / name).touch()
        if (listed := client.names("many/*")) != wanted:
            raise Failure(f"{len(listed)} of {len(wanted)} listed, {len(listed - wanted)} unknown ones")


def workout(ctx, options, large):
    """Runs the commands of every variant and compares with the server's disk."""
    client = Smbclient(ctx, options)
    sizes = trees.odd_files(ctx.work / "odd") + ([trees.big_file(100 * MIB)] if large or ctx.full else [])
    listing(ctx, client)
    transfer(ctx, client, sizes)
    names(ctx, client)
    changes(ctx, client)
    information(ctx, client)


def register():
    for name, profile, options in VARIANTS:

        def run(ctx, options=options, large=name in LARGE):
            workout(ctx, options, large)

        run.__doc__ = "list, transfer, names, changes, information"
        group(f"smbclient/{name}", profile=profile)(run)


register()


@group("smbclient/read-only", profile="read-only")
def read_only(ctx):
    """A read-only share: reads work, changes are refused."""
    client = Smbclient(ctx, holding("SMB3_11", "SMB3_11"))
    source = trees.fill(ctx.server.path / "there.bin", 99_999, 10)
    with ctx.check("get"):
        client.run(f'get there.bin "{ctx.work}/there.bin"')
        trees.same_file(source, ctx.work / "there.bin")
    for name, script in {
        "put": f'put "{source}" new.bin',
        "mkdir": "mkdir new",
        "del": "del there.bin",
        "rename": "rename there.bin elsewhere.bin",
        "setmode": "setmode there.bin +h",
    }.items():
        with ctx.check(f"refuses-{name}"):
            _, output = client.status(script)
            if not re.search("NT_STATUS_(ACCESS_DENIED|MEDIA_WRITE_PROTECTED)", output):
                raise Failure(f"answered {output.strip()[-200:] or 'success'!r}")
            if os.listdir(ctx.server.path) != ["there.bin"]:
                raise Failure(f"the disk changed: {os.listdir(ctx.server.path)}")


@group("smbclient/snapshots")
def snapshots(ctx):
    """Previous versions: listed, read by their @GMT names, protected from writes."""
    client, share = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), "snapshots"
    live, stamps = ctx.server.path2, ["@GMT-2015.10.31-19.40.30", "@GMT-2016.02.29-00.00.00"]
    (live / "dir").mkdir()
    (live / "dir/file.bin").write_bytes(b"now")
    pasts = {}
    for number, stamp in enumerate(stamps):
        folder = live / ".snapshots" / stamp / "dir"
        folder.mkdir(parents=True)
        pasts[stamp] = trees.fill(folder / "file.bin", 70_000 + number, 20 + number)
    with ctx.check("listed"):
        output = client.run("allinfo dir/file.bin", share=share)
        if re.findall(r"^@GMT-\S+", output, re.M) != stamps[::-1] or "70001" not in output:
            raise Failure(f"allinfo says {output.strip()[-300:]!r}")
    for stamp, past in pasts.items():
        with ctx.check(f"get-{stamp}"):
            client.run(f'get "{stamp}\\dir\\file.bin" "{ctx.work}/past.bin"', share=share)
            trees.same_file(past, ctx.work / "past.bin")
    with ctx.check("folder"):
        if "file.bin" not in client.run(f'ls "{stamps[0]}\\dir\\*"', share=share):
            raise Failure("the snapshot folder is empty")
    with ctx.check("none-of-that-time"):
        client.refused(
            "NT_STATUS_OBJECT_NAME_NOT_FOUND", 'get "@GMT-2014.01.01-00.00.00\\dir\\file.bin" x', share=share
        )
    for name, script in {
        "put": f'put "{pasts[stamps[1]]}" "{stamps[0]}\\dir\\file.bin"',
        "del": f'del "{stamps[0]}\\dir\\file.bin"',
        "mkdir": f'mkdir "{stamps[0]}\\new"',
    }.items():
        with ctx.check(f"refuses-{name}"):
            _, output = client.status(script, share=share)
            if not re.search("NT_STATUS_(ACCESS_DENIED|MEDIA_WRITE_PROTECTED)", output):
                raise Failure(f"answered {output.strip()[-200:] or 'success'!r}")
            if pasts[stamps[0]].stat().st_size != 70_000 or (live / ".snapshots" / stamps[0] / "new").exists():
                raise Failure("the snapshot changed")


@group("smbclient/notify")
def notify(ctx):
    """A client that watches a folder is notified of changes by programs of the host."""
    server = ctx.server
    (server.path / "watched" / "below").mkdir(parents=True)
    # smbclient watches the folder until it is killed. stdbuf makes it print each line at once.
    watcher = subprocess.Popen(
        [
            "timeout",
            "20",
            "stdbuf",
            "-oL",
            *server.smbclient("notify watched", options=holding("SMB3_11", "SMB3_11")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(1.5)
    script = "echo 1 > new; mv new newer; mkdir folder; echo 2 > below/deep; rm newer"
    subprocess.run(["sh", "-c", script], cwd=server.path / "watched", check=True)
    time.sleep(1.5)
    watcher.terminate()
    told = watcher.communicate(timeout=10)[0]
    for name, line in {
        "added": r"0001 new$",
        "renamed": r"0004 new\n0005 newer$",
        "folder": r"0001 folder$",
        "below": r"0001 below\\deep$",
        "removed": r"0002 newer$",
    }.items():
        with ctx.check(name):
            if not re.search(line, told, re.M):
                raise Failure(f"notified {told.strip()[-300:]!r}")


@group("smbclient/refusals")
def refusals(ctx):
    """Refused: dialects below `min_dialect`, and unprotected sessions where protection is required."""
    for name, low, high in (("SMB1", "NT1", "NT1"), ("2.0.2", "SMB2_02", "SMB2_02")):
        with ctx.check(f"dialect-{name}"):
            Smbclient(ctx, holding(low, "SMB3_11")).run("ls")  # served, if only for a higher dialect
            Smbclient(ctx, holding(low, high)).refused("protocol negotiation failed", "ls")


@group("smbclient/refusals-sealed", profile="as-shipped")
def refusals_sealed(ctx):
    """A server that requires encryption refuses clients without it."""
    with ctx.check("client-without-encryption"):
        Smbclient(ctx, holding("SMB3_11", "SMB3_11")).run("ls")
        _, output = Smbclient(ctx, holding("SMB2_10", "SMB2_10")).status("ls")
        if not re.search("NT_STATUS_ACCESS_DENIED|protocol negotiation failed: NT_STATUS_NOT_SUPPORTED", output):
            raise Failure(f"answered {output.strip()[-200:]!r}")


@group("smbclient/tree-20000", full_only=True)
def tree_20000(ctx):
    """20,000 files of a toolchain copied to the share and back; checksums are equal."""
    client = Smbclient(ctx, holding("SMB3_11", "SMB3_11"))
    source, back = trees.toolchain_tree(), ctx.work / "back"
    back.mkdir()
    with ctx.check("mput"):
        client.run("mkdir tree", "cd tree", "prompt off", "recurse on", f'lcd "{source}"', "mput *", timeout=1200)
        trees.same_tree(source, ctx.server.path / "tree")
    with ctx.check("mget"):
        client.run("cd tree", "prompt off", "recurse on", f'lcd "{back}"', "mget *", timeout=1200)
        trees.same_tree(source, back)
