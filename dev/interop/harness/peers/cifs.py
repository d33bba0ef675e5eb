"""The Linux kernel's client, cifs.ko, in User Mode Linux."""

import hashlib
import os
import re
import shutil
import struct
import threading
import time

from .. import trees
from ..model import HERE, OUT, Failure, group

TOOLS = OUT / "tools/bin"

# Each entry: name, server profile, mount options.
MOUNTS = [
    ("default", "default", ""),
    ("seal", "default", "seal"),
    ("sign", "default", "sign"),
    ("cache-none", "default", "cache=none"),
    ("sealed-by-server", "as-shipped", ""),
    ("posix", "default", "posix"),
    ("vers-2.1", "old-dialects", "vers=2.1"),
]
MOUNTS_FULL = [
    ("vers-3.0.2", "old-dialects", "vers=3.0.2"),
    ("nolease", "default", "nolease"),
    ("multichannel", "multichannel", "multichannel,max_channels=4"),
    ("seal-multichannel", "multichannel", "seal,multichannel,max_channels=4"),
    ("small-requests", "default", "rsize=65536,wsize=65536"),
    ("vers-3.0", "old-dialects", "vers=3.0"),
    ("resilient", "default", "resilienthandles"),
    ("mfsymlinks", "default", "mfsymlinks"),
    ("sfu", "default", "sfu"),
    ("cifsacl", "torture", "cifsacl"),
]

# A text that /proc/mounts or DebugData shows for each mount option.
PROOFS = {
    "posix": ",posix,",
    "sign": "signed",
    "seal": "[Ee]ncrypted",
    "nolease": ",nolease",
    "multichannel": "Extra Channels: [1-9]",
}


def guest(ctx, options, *command, limit=180, memory="512M", env=None):
    """Runs a command in a guest, in the mounted share; returns (status, output)."""
    mount = ["-o", options] if options else []
    return ctx.command(
        HERE / "linux-client", *mount, "-m", memory, "-t", limit, "--", *command, timeout=limit + 30, env=env
    )


def script(ctx, options, text, **more):
    """Runs a shell script in the mounted share; it must exit with 0."""
    path = ctx.work / "script"
    path.write_text("set -euo pipefail\n" + text)
    status, output = guest(ctx, options, "bash", path, **more)
    if status:
        raise Failure(f"status {status}: {output.strip()[-250:]}")
    return output


def checks(ctx, options, share=None):
    """Boots a guest, mounts the share, runs frevo-guest-checks, then verifies the server's disk."""
    report = ctx.work / "report"
    program = TOOLS / "frevo-guest-checks"
    with ctx.check("mount"):
        # The rows of the table come from the report. The exit status only repeats their results.
        status, output = guest(
            ctx,
            options,
            "bash",
            "-c",
            f"grep ' /mnt/smb cifs ' /proc/mounts; cat /proc/fs/cifs/DebugData; exec {program} run . {report}",
            env={"SMB_SHARE": share} if share else None,
        )
        if status in (124, 125, 126) or " cifs " not in output:
            raise Failure(f"status {status}: {output.strip()[-250:]}")
        for option, proof in PROOFS.items():
            if option in options.split(",") and not re.search(proof, output):
                raise Failure(f"mounted with {option}, but the kernel does not show {proof}")
        if ctx.group.profile == "default" and "seal" not in options and "encrypted" in output.lower():
            raise Failure("encrypted, although neither side requires it")
        if "vers=" not in options and "Dialect 0x311" not in output:
            raise Failure("the dialect is not 3.1.1")
    ctx.report(report.read_text() if report.exists() else "", needed=["left-tree"])
    if left := LEFT.get(options):
        left(ctx, options)
    proof = ctx.work / "proof"
    ctx.command(program, "verify", ctx.server.path, proof)
    ctx.report(proof.read_text() if proof.exists() else "", needed=["disk-names", "disk-bytes", "disk-times"])


def posix(ctx, options):
    """Checks the POSIX extensions, on the mount and on the server's disk."""
    report = ctx.work / "posix"
    guest(ctx, options, TOOLS / "frevo-guest-checks", "posix", ".", report)
    ctx.report(report.read_text() if report.exists() else "", needed=["posix-statfs"])
    room = ctx.server.path / "posix"
    with ctx.check("posix-disk"):
        for name, mode in (
            ("600", 0o600),
            ("640", 0o640),
            ("444", 0o444),
            ("a:b*?.", 0o666),
            ("chmodded", 0o751),
            ("private", 0o2770),
            ("made", 0o1777),
        ):
            found = (room / name).stat().st_mode & 0o7777
            # Clients may set the set-group-ID bit on directories only.
            if found != mode & (0o3777 if (room / name).is_dir() else 0o1777):
                raise Failure(f"{name} has mode {found:o}")
        if (room / "twin").read_text() != "lower" or (room / "TWIN").read_text() != "upper":
            raise Failure("names that differ in case are confused")
        if (room / "replaced").read_text() != "new" or (room / "gone").exists():
            raise Failure("an open file was not replaced or not removed")


def mfsymlinks(ctx, options):
    """Minshall and French's symbolic links: plain files of a fixed size, in the layout that clients write."""
    with ctx.check("links-on-disk"):
        target = "somewhere/é else"
        output = script(ctx, options, f"ln -s '{target}' mf-link; readlink mf-link; stat -c %F mf-link")
        if output.split("\n")[:2] != [target, "symbolic link"]:
            raise Failure(output.strip()[-200:])
        text = target.encode()
        wanted = b"XSym\n%04d\n%s\n%s\n" % (len(text), hashlib.md5(text).hexdigest().encode(), text)
        link = ctx.server.path / "mf-link"
        if link.is_symlink() or link.read_bytes() != wanted.ljust(1067):
            raise Failure(f"on the server's disk: {link.lstat()}, {link.read_bytes()[:100]}")


def sfu(ctx, options):
    """Services for Unix's special files: small SYSTEM files with a mark, no devices of the host."""
    with ctx.check("special-files-on-disk"):
        output = script(
            ctx, options, "mkfifo sfu-pipe; mknod sfu-null c 1 3; mknod sfu-disk b 8 17\nstat -c '%n %F %t %T' sfu-*"
        )
        wanted = ["sfu-disk block special file 8 11", "sfu-null character special file 1 3", "sfu-pipe fifo 0 0"]
        if output.strip().split("\n") != wanted:
            raise Failure(output.strip()[-200:])
        for name, content in (
            ("sfu-null", struct.pack("<8sQQ", b"IntxCHR", 1, 3)),
            ("sfu-disk", struct.pack("<8sQQ", b"IntxBLK", 8, 17)),
            ("sfu-pipe", b"LnxFIFO".ljust(24, b"\0")),
        ):
            path = ctx.server.path / name
            if not path.is_file() or path.read_bytes() != content:
                raise Failure(f"{name} on the server's disk: {path.lstat()}")
            if ctx.server.kind == "frevo" and not is_system(path):
                raise Failure(f"{name} is not stored with SYSTEM")


def is_system(path):
    """Returns True if user.DOSATTRIB (Samba's layout, version 5) has FILE_ATTRIBUTE_SYSTEM."""
    version, _, _, attributes = struct.unpack("<HIII", os.getxattr(path, "user.DOSATTRIB")[2:16])
    return version == 5 and bool(attributes & 0x4)


def cifsacl(ctx, options):
    """chmod as an access list: stored beside the file, and shown by the mode for group and others."""
    with ctx.check("lists-on-disk"):
        output = script(
            ctx,
            options,
            "touch acl-file; mkdir acl-dir; chmod 640 acl-file; chmod 751 acl-dir; stat -c %a acl-file acl-dir",
        )
        if output.split() != ["640", "751"]:
            raise Failure(output.strip()[-200:])
        if ctx.server.kind != "frevo":
            return  # smbd keeps a POSIX ACL; the mode shows its mask.
        for name, shown in (("acl-file", 0o40), ("acl-dir", 0o51)):
            path = ctx.server.path / name
            mode = path.stat().st_mode & 0o77
            if mode != shown:
                raise Failure(f"{name} has {mode:o} for group and others on the server's disk, wanted {shown:o}")
            if "security.NTACL" not in os.listxattr(path):
                raise Failure(f"{name} has no stored list: {os.listxattr(path)}")


# Further checks for mounts with these options.
LEFT = {"posix": posix, "mfsymlinks": mfsymlinks, "sfu": sfu, "cifsacl": cifsacl}


def register():
    for table, full_only in ((MOUNTS, False), (MOUNTS_FULL, True)):
        for name, profile, options in table:

            def run(ctx, options=options):
                checks(ctx, options)

            run.__doc__ = f"mount -o {options or '(nothing more)'}; frevo-guest-checks"
            group(f"cifs/{name}", profile=profile, full_only=full_only)(run)


register()


@group("cifs/persistent", full_only=True)
def persistent(ctx):
    """mount -o persistenthandles of a share that is continuously available; frevo-guest-checks"""
    checks(ctx, "persistenthandles", share="continuous")


def repository(ctx):
    """Makes a git repository with five commits on the host."""
    path = ctx.work / "repository"
    path.mkdir()
    git = ["git", "-c", "user.name=Frevo", "-c", "user.email=frevo@localhost", "-C", path]
    ctx.command(*git, "init", "-q", "-b", "main")
    for commit in range(5):
        for i in range(30):
            trees.fill(path / f"file {commit} {i}", 700 * i + commit, commit * 100 + i)
        ctx.command(*git, "add", "-A")
        ctx.command(*git, "commit", "-q", "-m", f"number {commit}")
    return path


@group("cifs/programs")
def programs(ctx):
    """git, sqlite3 and tar at work on a mount."""
    share = ctx.server.path
    with ctx.check("git-clone"):
        source = repository(ctx)
        script(
            ctx,
            "",
            f"""export GIT_CONFIG_GLOBAL=/dev/null
            git -c safe.directory='*' clone -q --no-hardlinks 'file://{source}' clone
            cd clone
            git -c safe.directory='*' fsck --full --strict 2>&1
            git -c safe.directory='*' status --porcelain
            """,
        )
        here = {k: v for k, v in trees.digest(source).items() if not k.startswith(b".git")}
        there = {k: v for k, v in trees.digest(share / "clone").items() if not k.startswith(b".git")}
        if not here or here != there:
            raise Failure("the clone's work tree is not the original's")
        status, output = ctx.command(
            "git", "-c", "safe.directory=*", "-C", share / "clone", "fsck", "--full", "--strict"
        )
        if status:
            raise Failure(f"fsck on the server's disk: {output.strip()[-200:]}")
    with ctx.check("sqlite3"):
        (ctx.work / "work.sql").write_text(
            "PRAGMA journal_mode=DELETE; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT, h TEXT);\n"
            + "".join(
                "BEGIN;"
                + "".join(f"INSERT INTO t(v, h) VALUES(hex(zeroblob({i % 40})), 'row {b}-{i}');" for i in range(100))
                + "COMMIT;\n"
                for b in range(20)
            )
            + "CREATE INDEX h ON t(h); DELETE FROM t WHERE id % 3 = 0; UPDATE t SET v = h WHERE id % 5 = 0; VACUUM;\n"
        )
        query = "PRAGMA integrity_check; SELECT count(*), sum(id), sum(length(v)), max(h) FROM t;"
        # SQLite locks a range exclusively over its own shared lock, which SMB refuses. The mount
        # option nobrl keeps the locks local.
        output = script(ctx, "nobrl", f"sqlite3 work.db < {ctx.work}/work.sql; sqlite3 work.db '{query}'")
        ctx.command("sh", "-c", f"sqlite3 {ctx.work}/local.db < {ctx.work}/work.sql")
        _, local = ctx.command("sqlite3", ctx.work / "local.db", query)
        _, disk = ctx.command("sqlite3", share / "work.db", query)
        if not local.startswith("ok\n") or local != disk or local.strip() not in output:
            raise Failure(f"here {local!r}, through the mount {output[-80:]!r}, on the server's disk {disk!r}")
    with ctx.check("tar"):
        tree, back = trees.named_tree(ctx.work / "tree"), ctx.work / "back"
        back.mkdir()
        ctx.command("tar", "-C", tree, "-cf", ctx.work / "in.tar", ".")
        script(
            ctx,
            "",
            f"mkdir tarred; tar --no-same-owner -C tarred -xf {ctx.work}/in.tar\n"
            f"tar -C tarred -cf {ctx.work}/out.tar .",
        )
        ctx.command("tar", "-C", back, "-xf", ctx.work / "out.tar")
        trees.same_tree(tree, share / "tarred")
        trees.same_tree(tree, back)


def meanwhile(ctx, text, act, options="", **more):
    """Runs `text` in a guest; once it has made $WORK/ready, `act` runs here, then $WORK/go appears."""
    trouble = []

    def wait():
        end = time.monotonic() + 60
        while not (ctx.work / "ready").exists():
            if time.monotonic() > end:
                trouble.append(Failure("the guest was not ready in time"))
                return
            time.sleep(0.05)
        try:
            act()
        except Exception as e:  # for the thread that waits
            trouble.append(e)
        (ctx.work / "go").touch()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        output = script(
            ctx,
            options,
            f"WORK={ctx.work}\nready() {{ touch $WORK/ready; until [ -e $WORK/go ]; do sleep 0.1; done; }}\n" + text,
            **more,
        )
    finally:
        thread.join()
    for name in ("ready", "go"):
        (ctx.work / name).unlink(missing_ok=True)
    if trouble:
        raise trouble[0]
    return output


@group("cifs/leases")
def leases(ctx):
    """Another client's access makes a client write back or drop its cache."""
    from .smbclient import Smbclient, holding

    other = Smbclient(ctx, holding("SMB3_11", "SMB3_11"))
    with ctx.check("cached-write-is-seen"):
        data = trees.fill(ctx.work / "data", 300_000, 20)
        meanwhile(
            ctx,
            f"exec 3<>dirty.bin; cat {data} >&3; ready; exec 3>&-",
            lambda: other.run(f'get dirty.bin "{ctx.work}/fetched"'),
        )
        trees.same_file(data, ctx.work / "fetched")
    with ctx.check("cached-read-is-dropped"):
        old, new = trees.fill(ctx.work / "old", 200_000, 21), trees.fill(ctx.work / "new", 200_000, 22)
        shutil.copyfile(old, ctx.server.path / "read.bin")
        meanwhile(
            ctx,
            "exec 3<read.bin; cat read.bin >$WORK/before; ready; cat read.bin >$WORK/after; exec 3<&-",
            lambda: other.run(f'put "{new}" read.bin'),
        )
        trees.same_file(old, ctx.work / "before")
        trees.same_file(new, ctx.work / "after")
    with ctx.check("deferred-close-gives-way"):
        # The client keeps the handle open after the program's close, under its lease. Another
        # client's rename must not wait for that handle.
        began = []

        def rename():
            began.append(time.monotonic())
            other.run("rename closed.bin moved.bin")
            if time.monotonic() - began[0] > 20:
                raise Failure("the rename waited for the client's break to time out")

        meanwhile(ctx, "echo text >closed.bin; cat closed.bin; ready", rename)
        if (ctx.server.path / "moved.bin").read_bytes() != b"text\n":
            raise Failure("wrong bytes under the new name")


# The fsx run closes and opens the file again, and calls fsync. Without a cache a memory map and a
# read do not share pages, so it uses no maps.
MAPPED = "[weights]\nclose_open = 0.3\nfsync = 0.1\n"
UNMAPPED = MAPPED + "mapread = 0.0\nmapwrite = 0.0\n"


def fsx(ctx, options, config, operations):
    """Random reads, writes, maps and truncates of one file, checked against memory."""
    with ctx.check(f"{operations}-operations"):
        (ctx.work / "fsx.toml").write_text(config)
        output = script(
            ctx,
            options,
            f"{TOOLS}/fsx -q -N {operations} -S 7 -f {ctx.work}/fsx.toml -P {ctx.work} fsx.bin 2>&1",
            limit=900,
        )
        if "All operations completed A-OK" not in output:
            raise Failure(output.strip()[-250:])


for _name, _options, _config in (
    ("fsx", "", MAPPED),
    ("fsx-seal", "seal", MAPPED),
    ("fsx-cache-none", "cache=none", UNMAPPED),
    ("fsx-seal-cache-none", "seal,cache=none", UNMAPPED),
    ("fsx-multichannel", "multichannel,max_channels=4", MAPPED),
):
    _plain = _name in ("fsx", "fsx-seal")

    @group(f"cifs/{_name}", profile="multichannel" if "multi" in _name else "default", full_only=not _plain)
    def _fsx(ctx, options=_options, config=_config):
        """fsx on a mount."""
        fsx(ctx, options, config, 20_000 if ctx.full else 2_000)


@group("cifs/tree-20000", full_only=True)
def tree_20000(ctx):
    """20,000 files of a toolchain copied onto the mount and back; checksums are equal."""
    source, back = trees.toolchain_tree(), ctx.work / "back"
    back.mkdir()
    with ctx.check("there"):
        script(ctx, "", f"tar -C {source} -cf - . | tar --no-same-owner -xf - -C .", limit=1500)
        trees.same_tree(source, ctx.server.path)
    with ctx.check("back"):
        script(ctx, "", f"tar -cf - . | tar -C {back} -xf -", limit=1500)
        trees.same_tree(source, back)
    shutil.rmtree(back, ignore_errors=True)
    if os.listdir(ctx.server.path):
        with ctx.check("remove"):
            script(ctx, "", "rm -rf ./*", limit=900)
            if left := os.listdir(ctx.server.path):
                raise Failure(f"files left: {left[:3]}")


# Bytes that dd writes. The link is cut when a quarter of them are on the server.
CUT_SIZE = 256 << 20
# Seconds for which the link is cut, and seconds between two ECHO requests by which the client tests
# a channel.
CUT_SECONDS, ECHO_SECONDS = 20, 4


def cut_link(ctx, link, path, instead="drop"):
    """Drops or resets all packets of a link for a while, once a part of the file is there."""
    end = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size >= CUT_SIZE // 4):
        if time.monotonic() > end:
            raise Failure("dd has not written a quarter within a minute")
        time.sleep(0.01)
    size = path.stat().st_size
    if size == CUT_SIZE:
        raise Failure("dd was too fast")
    rules = "".join(
        f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}\n"
        f'add rule inet cut {hook} {field} "{link}" {instead}\n'
        for hook, field in (("input", "iifname"), ("output", "oifname"))
    )
    ctx.command("sh", "-c", f"printf '%s' '{'add table inet cut' + chr(10) + rules}' | nft -f -")
    time.sleep(CUT_SECONDS)
    ctx.command("nft", "delete", "table", "inet", "cut")


@group("cifs/link-cut", profile="multichannel", full_only=True)
def link_cut(ctx):
    """dd with fsync over two links, one of which is cut for 20 s or answers with resets: the file is whole."""
    reset = "meta l4proto tcp reject with tcp reset"
    for name, options, link, instead in (
        ("plain", "", "tap1", "drop"),
        ("sealed", "seal,", "tap1", "drop"),
        # tap0 carries the client's first channel, over which it sends ECHO.
        ("plain-first", "", "tap0", "drop"),
        ("sealed-first", "seal,", "tap0", "drop"),
        # Without `hard`, cifs.ko passes a socket error on to the program.
        ("reset", "hard,", "tap1", reset),
        ("sealed-reset", "seal,hard,", "tap1", reset),
        ("reset-first", "hard,", "tap0", reset),
    ):
        with ctx.check(name):
            path = ctx.server.path / name
            source = ctx.work / "source"
            with open(source, "wb") as file:
                for _ in range(CUT_SIZE >> 20):
                    file.write(os.urandom(1 << 20))
            output = meanwhile(
                ctx,
                f"grep -A40 'Extra Channels' /proc/fs/cifs/DebugData || true\n"
                f"touch $WORK/ready\ndd if={source} of={name} bs=1M conv=fsync 2>&1\n"
                "until [ -e $WORK/go ]; do sleep 0.1; done\n",
                lambda link=link, path=path, instead=instead: cut_link(ctx, link, path, instead),
                options=f"{options}multichannel,max_channels=4,echo_interval={ECHO_SECONDS}",
                limit=240,
            )
            if not re.search(PROOFS["multichannel"], output):
                raise Failure("mounted without a second channel")
            trees.same_file(source, path)
