"""Frevo's own client against the server: every command, in every protection and dialect.

The client accepts only what its variant allows: if a command works, that variant was in use.
"""

import errno
import json
import os
import re
import shutil
import subprocess

from .. import trees
from ..model import Failure, group
from ..servers import Server
from .mount.fixture import mounted, no_fuse, refused

# Each entry: name, server profile, client arguments.
VARIANTS = [
    ("3.1.1-default", "default", []),
    *[(f"3.1.1-signed-{name}", "default", ["--signing", name]) for name in ("aes-gmac", "aes-cmac", "hmac-sha256")],
    *[
        (f"3.1.1-sealed-{name}", "default", ["-e", "--cipher", name])
        for name in ("aes-128-gcm", "aes-128-ccm", "aes-256-gcm", "aes-256-ccm")
    ],
    ("3.1.1-sealed-by-server", "as-shipped", []),
    ("3.1.1-channels", "multichannel", ["--channels", "4"]),
    ("3.1.1-channels-sealed", "multichannel", ["--channels", "4", "-e"]),
    ("3.0.2", "old-dialects", ["--max-dialect", "3.0.2", "--min-dialect", "3.0.2"]),
    ("3.0.2-sealed", "old-dialects", ["--max-dialect", "3.0.2", "--min-dialect", "3.0.2", "-e"]),
    ("3.0", "old-dialects", ["--max-dialect", "3.0", "--min-dialect", "3.0"]),
    ("3.0-sealed", "old-dialects", ["--max-dialect", "3.0", "--min-dialect", "3.0", "-e"]),
    ("2.1", "old-dialects", ["--max-dialect", "2.1", "--min-dialect", "2.1"]),
]
QUICK = {"3.1.1-default", "3.1.1-sealed-aes-128-gcm", "3.1.1-channels-sealed", "3.0.2"}


class Client:
    """The program `frevo` with the arguments of one variant."""

    def __init__(self, ctx, options):
        self.ctx, self.options = ctx, options
        self.program = os.environ["FREVO_CLIENT"]

    def url(self, path=""):
        server = self.ctx.server
        return f"smb://{server.user}@{server.address}:{server.port}/{server.share}/{path}"

    def status(self, verb, *args, password=None, timeout=120):
        env = {"FREVO_PASSWORD": password or self.ctx.server.password}
        return self.ctx.command(self.program, verb, *self.options, *args, env=env, timeout=timeout)

    def run(self, verb, *args, **more):
        status, output = self.status(verb, *args, **more)
        if status:
            raise Failure(f"{verb}: status {status}: {output.strip()[-200:]}")
        return output

    def refused(self, wanted, verb, *args, **more):
        status, output = self.status(verb, *args, **more)
        if status != wanted:
            raise Failure(f"{verb}: wanted {wanted}, got {status}: {output.strip()[-200:]}")


# The last line of a dry run when both trees are equal.
NOTHING_TO_DO = "frevo: dry run: nothing to do"


class Disk:
    """The server's share as this machine's file system shows it, for comparison."""

    def __init__(self, ctx):
        self.root = ctx.server.path

    def folder(self, name=""):
        """A directory with a copy of the server's share."""
        return self.root / name

    def bytes(self, name):
        return (self.root / name).read_bytes()

    def exists(self, name):
        return (self.root / name).exists()

    def write(self, name, data):
        (self.root / name).write_bytes(data)

    def clear(self):
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def everything(ctx, options, disk=None, made=Client):
    """Runs every command once and compares with the server's disk."""
    client, there = made(ctx, options), disk or Disk(ctx)
    with ctx.check("shares"):
        output = client.run("shares", client.url().rsplit("/", 2)[0])
        if ctx.server.share not in output.split():
            raise Failure(output)
    with ctx.check("sizes"):
        for size in (0, 1, 4096, 65_536, 65_537, 1_048_577, 30_000_000):
            data = os.urandom(size)
            (ctx.work / "one").write_bytes(data)
            client.run("put", "one", client.url(f"size {size}"))
            if there.bytes(f"size {size}") != data:
                raise Failure(f"{size} bytes differ on the server's disk")
            client.run("get", client.url(f"size {size}"), "back")
            if (ctx.work / "back").read_bytes() != data:
                raise Failure(f"{size} bytes differ after the download")
    here = ctx.work / "tree"
    for at in range(150):
        folder = here / f"d{at % 5}" / "é ü"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file {at}").write_bytes(os.urandom(at * 700))
    with ctx.check("tree"):
        client.run("put", "-r", "tree", client.url())
        trees.same_tree(here, there.folder("tree"))
        client.run("get", "-r", client.url("tree"), "tree-back")
        trees.same_tree(here, ctx.work / "tree-back")
    with ctx.check("copy on the server"):
        said = json.loads(client.run("cp", "--json", client.url("size 30000000"), client.url("copy")))
        if said["bytes_by_server"] != 30_000_000:
            raise Failure(f"the copy went through the client: {said}")
        if there.bytes("copy") != there.bytes("size 30000000"):
            raise Failure("the copy differs")
        client.run("cp", "-r", client.url("tree"), client.url("tree-copy"))
        trees.same_tree(here, there.folder("tree-copy"))
    with ctx.check("sync"):
        client.run("sync", "tree", client.url("synced"))
        trees.same_tree(here, there.folder("synced"))
        output = client.run("sync", "-n", "tree", client.url("synced")).strip()
        if output != NOTHING_TO_DO:
            raise Failure(f"the trees differ: {output[:200]}")
        there.write("synced/more", b"x")
        client.run("sync", "--delete", "--checksum", "tree", client.url("synced"))
        trees.same_tree(here, there.folder("synced"))
    with ctx.check("names"):
        client.run("mkdir", "-p", client.url("a/b/c"))
        client.run("mv", client.url("copy"), client.url("a/b"))
        if not there.exists("a/b/copy"):
            raise Failure("the file was not moved")
        listed = [json.loads(line) for line in client.run("ls", "--json", "-R", client.url("a")).splitlines()]
        if {(e["path"], e["type"]) for e in listed} != {
            ("a/b", "directory"),
            ("a/b/c", "directory"),
            ("a/b/copy", "file"),
        }:
            raise Failure(f"{listed}")
        if "a/b/copy" not in client.run("find", client.url(), "--name", "COPY", "--type", "f"):
            raise Failure("the file was not found")
        client.run("stat", client.url("a/b/copy"))
        client.run("tree", client.url("a"))
        client.run("rm", "-r", client.url("a"), client.url("tree"), client.url("tree-copy"))
        if there.exists("a") or there.exists("tree"):
            raise Failure("the file was not removed")
    with ctx.check("acl"):
        if not re.match(r"owner \S", output := client.run("acl", client.url("size 1"))):
            raise Failure(output)
    with ctx.check("cat"):
        there.write("words", b"to be shown\n")
        if (output := client.run("cat", client.url("words"), client.url("size 0"))) != "to be shown\n":
            raise Failure(repr(output))
    with ctx.check("several and odd names"):
        odd = ctx.work / "odd"
        odd.mkdir(exist_ok=True)
        names = ["co:lon", "st*r", "back\\slash", "end.", "plain"]
        for name in names:
            (odd / name).write_bytes(name.encode())
        # These file names contain a colon. No command may take one for a stream of the file `co`.
        there.write("co", b"mine")
        client.run("put", *(f"odd/{name}" for name in names), client.url("taken/"))
        client.run("sync", "odd", client.url("odd"))
        client.run("get", "-r", client.url("taken"), "given")
        client.run("get", client.url("taken/plain"), client.url("co"), "given/")
        # A file never replaces a directory, and a directory never replaces a file.
        client.refused(1, "get", client.url("taken/plain"), client.url("odd/plain"), "given/")
        if there.bytes("co") != b"mine" or (ctx.work / "given/co").read_bytes() != b"mine":
            raise Failure("a name with a colon was taken for a stream")
        (ctx.work / "given/co").unlink()
        trees.same_tree(odd, ctx.work / "given")
        output = client.run("sync", "--dry-run", "--delete", "odd", client.url("odd")).strip()
        if output != NOTHING_TO_DO:
            raise Failure(f"the trees differ: {output[:200]}")
        shutil.rmtree(ctx.work / "given")
        client.run("rm", "-r", client.url("taken"), client.url("odd"))
    with ctx.check("attributes"):

        def flags(name):
            found = json.loads(client.run("stat", "--json", client.url(name)))
            return found["attributes"] & 0x27, found["created"]

        for size in (100, 200_000):
            path = ctx.work / "read-only"
            path.write_bytes(bytes(size))
            path.chmod(0o444)
            client.run("put", "read-only", client.url("read-only"))
            if flags("read-only")[0] & 7 != 1:
                raise Failure(f"{flags('read-only')}")
            client.refused(1, "put", "read-only", client.url("read-only"))
            client.run("cp", client.url("read-only"), client.url("its copy"))
            if flags("its copy") != flags("read-only"):
                raise Failure(f"{flags('its copy')}, {flags('read-only')}")
            client.run("get", client.url("its copy"), "came-back")
            if (ctx.work / "came-back").stat().st_mode & 0o777 != 0o444:
                raise Failure("the file has another mode after the download")
            path.chmod(0o644)
            path.write_bytes(bytes(size) + b"more")
            client.run("put", "--force", "read-only", client.url("read-only"))
            if there.bytes("read-only") != bytes(size) + b"more" or flags("read-only")[0] & 7:
                raise Failure(f"the read-only file was not replaced: {flags('read-only')}")
            path.unlink()
            (ctx.work / "came-back").unlink()
            client.run("rm", "-f", client.url("read-only"), client.url("its copy"))
    with ctx.check("refusals"):
        client.refused(6, "ls", client.url("nothing"))
        client.refused(4, "ls", client.url(), password="wrong")
    there.clear()


for name, profile, options in VARIANTS:

    def run(ctx, options=options):
        everything(ctx, options)

    run.__doc__ = f"Frevo's client: {name}"
    group(f"client/{name}", profile=profile, full_only=name not in QUICK)(run)


def at_smbd(ctx, checks):
    """Runs `checks` with a server of its own, an smbd, in place of the run's server."""
    address = "198.18.0.42"
    subprocess.run(["ip", "addr", "replace", f"{address}/24", "dev", "tap0"], check=True)
    before, ctx.server = ctx.server, Server("smbd", "default", address=address)
    try:
        checks()
    finally:
        ctx.server.stop()
        ctx.server = before


@group("client/against-smbd")
def against_smbd(ctx):
    """Frevo's client: every command against smbd too, also in a run whose server is Frevo."""
    if ctx.server.kind == "smbd":
        ctx.add("smbd", "skip", 0.0, "smbd runs every variant already")
        return
    at_smbd(ctx, lambda: everything(ctx, []))


@group("client/snapshots")
def snapshots(ctx):
    """Frevo's client reads and restores previous versions of Frevo's server and of smbd's shadow_copy2."""
    past_versions(ctx, ctx.server.kind)
    if ctx.server.kind != "smbd":
        at_smbd(ctx, lambda: past_versions(ctx, "smbd"))


def past_versions(ctx, name):
    """Snapshots by token and by time, of files that are there and of files that were removed."""
    client, live = Client(ctx, []), ctx.server.path2
    stamps = {"@GMT-2015.10.31-19.40.30": "old", "@GMT-2016.02.29-00.00.00": "newer"}
    for stamp, text in stamps.items():
        (live / ".snapshots" / stamp / "dir/gone").mkdir(parents=True)
        (live / ".snapshots" / stamp / "dir/file").write_text(text)
        (live / ".snapshots" / stamp / "dir/gone/below").write_text(text)
    (live / "dir").mkdir()
    (live / "dir/file").write_text("now")
    # Users may change what the present holds.
    for path in [live / "dir", live / "dir/file"]:
        path.chmod(0o777)

    def url(path):
        return client.url(path).replace(f"/{ctx.server.share}/", "/snapshots/")

    def same(path, wanted):
        if (text := (live / path).read_text()) != wanted:
            raise Failure(f"{path} has {text!r}, not {wanted!r}")

    with ctx.check(f"{name}: by token"):
        for stamp, text in stamps.items():
            if client.run("cat", url(f"{stamp}/dir/file")) != text:
                raise Failure(f"not the text of {stamp}")
    with ctx.check(f"{name}: by time"):
        for when, text in {"2015-12-01": "old", "2016-02-29T00:00:00Z": "newer", "1d": "newer"}.items():
            (ctx.work / "there").unlink(missing_ok=True)
            client.run("get", "--as-of", when, url("dir/file"), str(ctx.work / "there"))
            if (ctx.work / "there").read_text() != text:
                raise Failure(f"not the text of {when}")
    with ctx.check(f"{name}: too old"):
        client.refused(6, "cat", "--as-of", "2015-01-01", url("dir/file"))
    with ctx.check(f"{name}: listing"):
        if "below" not in client.run("ls", "--as-of", "2015-12-01", url("dir/gone")):
            raise Failure("the removed folder is not listed")
    with ctx.check(f"{name}: restored"):
        client.run("restore", "--as-of", "2015-12-01", url("dir/gone"), url("dir/file"))
        same("dir/gone/below", "old")
        same("dir/file", "old")


@group("client/acl")
def acl(ctx):
    """Access lists: Frevo's client shows what smbcacls set, and the reverse."""
    client, server = Client(ctx, []), ctx.server
    (server.path / "listed").write_bytes(b"x")
    (server.path / "folder").mkdir()

    def smbcacls(name, *args):
        status, output = ctx.command(
            "smbcacls", f"//{server.address}/{server.share}", name, "-U", f"{server.user}%{server.password}", *args
        )
        if status:
            raise Failure(f"smbcacls {args}: {output.strip()[-200:]}")
        return output

    def entries(output, who):
        return [line for line in output.splitlines() if line.lower().startswith("acl:") and who in line]

    with ctx.check("names"):
        output = client.run("acl", client.url("listed"))
        owner = next(line for line in smbcacls("listed").splitlines() if line.startswith("OWNER:"))[6:]
        if f"owner {owner}" not in output:
            raise Failure(f"smbcacls shows {owner}: {output}")
    with ctx.check("add"):
        client.run("acl", client.url("listed"), "--add", f"allow:{server.user2}:read")
        found = entries(smbcacls("listed"), server.user2)
        if len(found) != 1 or "ALLOWED/0x0/READ" not in found[0]:
            raise Failure(f"{found}")
    with ctx.check("numbers"):
        numeric = client.run("acl", "-n", client.url("listed"))
        for line in smbcacls("listed", "--numeric").splitlines():
            if line.startswith("ACL:"):
                sid, kind, flags, mask = re.fullmatch(r"ACL:(S-[\d-]+):(\d)/(0x[0-9a-f]+)/(0x[0-9a-f]+)", line).groups()
                if f"{'deny' if kind == '1' else 'allow'}:{sid}:{mask}" not in numeric:
                    raise Failure(f"{line} is not in {numeric}")
    with ctx.check("remove"):
        client.run("acl", client.url("listed"), "--remove", server.user2)
        if found := entries(smbcacls("listed"), server.user2):
            raise Failure(f"{found}")
    with ctx.check("denied writing, allowed reading"):
        (server.path / "denied").write_bytes(b"x")
        client.run("acl", client.url("denied"), "--set", "allow:Everyone:change", "--set", f"deny:{server.user2}:w")
        other = client.url("denied").replace(f"//{server.user}@", f"//{server.user2}@")
        if client.run("cat", other) != "x":
            raise Failure("wrong content")
        (ctx.work / "more").write_bytes(b"more")
        client.refused(1, "put", "more", other)
        if (server.path / "denied").read_bytes() != b"x":
            raise Failure("the denied write succeeded")
    with ctx.check("what smbcacls adds"):
        smbcacls("folder", "-a", f"ACL:{server.user2}:ALLOWED/OI|CI/CHANGE")
        output = client.run("acl", client.url("folder"))
        if f"\\{server.user2}:change:oi,ci" not in output:
            raise Failure(output)
    with ctx.check("set"):
        client.run("acl", client.url("folder"), "--set", f"allow:{server.user}:full", "--set", f"deny:{server.user2}:w")
        output = smbcacls("folder")
        denied = entries(output, server.user2 + ":DENIED")
        if len(denied) != 1 or "OI|CI" not in denied[0] or not entries(output, ":ALLOWED/OI|CI/FULL"):
            raise Failure(output)


@group("client/dfs")
def dfs(ctx):
    """smbd's DFS namespace: links to the server under test, past a dead target, chained, circular and in trees."""
    address = "198.18.0.40"
    subprocess.run(["ip", "addr", "replace", f"{address}/24", "dev", "tap0"], check=True)
    root = Server("smbd", "default", address=address)
    try:
        there, target = ctx.server.path, ctx.server
        links = {
            "there": f"{target.address}\\{target.share}",
            "below": f"{target.address}\\{target.share}\\folder",
            # No server listens at the first target, so the client must try the second target.
            "spare": f"198.18.0.41\\gone,{target.address}\\{target.share}",
            "on": f"{address}\\dfs\\there",
            "round": f"{address}\\dfs\\round",
        }
        for name, to in links.items():
            (root.directory / "dfs" / name).symlink_to(f"msdfs:{to}")
        (root.directory / "dfs/plain").write_bytes(b"in the root itself")
        (there / "folder").mkdir()
        client = Client(ctx, [])

        def url(path):
            return f"smb://{root.user}@{address}/dfs/{path}"

        (ctx.work / "one").write_bytes(os.urandom(300_000))

        def same(path, name):
            if (there / name).read_bytes() != (ctx.work / "one").read_bytes():
                raise Failure(f"{name} differs on the server's disk")
            client.run("get", url(path), "back")
            if (ctx.work / "back").read_bytes() != (ctx.work / "one").read_bytes():
                raise Failure(f"{path} differs after the download")

        with ctx.check("root"):
            if client.run("cat", url("plain")) != "in the root itself":
                raise Failure("wrong content")
        with ctx.check("link"):
            client.run("put", "one", url("there/one"))
            same("there/one", "one")
        with ctx.check("link into a folder"):
            client.run("mkdir", "-p", url("below/a/b"))
            client.run("put", "one", url("below/a/b/two"))
            same("below/a/b/two", "folder/a/b/two")
            if "b/two" not in client.run("find", url("below/a"), "--name", "two"):
                raise Failure("the file was not found")
        with ctx.check("failover"):
            same("spare/one", "one")
        with ctx.check("link to a link"):
            same("on/one", "one")
        with ctx.check("copy across"):
            client.run("cp", url("there/one"), url("below/copy"))
            same("below/copy", "folder/copy")
        with ctx.check("circle"):
            status, output = client.status("ls", url("round/x"))
            if status != 1 or "circle" not in output:
                raise Failure(f"status {status}: {output}")
        tree = root.directory / "dfs/tree"
        (tree / "a").mkdir(parents=True)
        (tree / "inner").mkdir()
        (tree / "plain").write_bytes(b"beside")
        (tree / "a/link").symlink_to(f"msdfs:198.18.0.41\\gone,{target.address}\\{target.share}\\folder")
        (tree / "nest").symlink_to(f"msdfs:{address}\\dfs\\tree\\inner")
        (tree / "inner/deep").symlink_to(f"msdfs:{target.address}\\{target.share}\\folder\\a")
        with ctx.check("ls through links"):
            listed = {
                entry["path"] for entry in map(json.loads, client.run("ls", "-R", "--json", url("tree")).splitlines())
            }
            for wanted in ("plain", "a/link/a/b/two", "a/link/copy", "inner/deep/b/two", "nest/deep/b/two"):
                if f"tree/{wanted}" not in listed:
                    raise Failure(f"no {wanted} in {sorted(listed)}")
        with ctx.check("get through links"):
            client.run("get", "-r", url("tree"), "tree")
            trees.same_tree(ctx.work / "tree/a/link", there / "folder")
            trees.same_tree(ctx.work / "tree/nest/deep", there / "folder/a")
        with ctx.check("put through links"):
            for name in ("a/link/new", "nest/deep/b/new", "inner/new"):
                (ctx.work / "tree" / name).write_bytes(name.encode())
            client.run("put", "-r", "tree/a", url("tree"))
            client.run("sync", "tree/nest", url("tree/nest"))
            for name, content in (("folder/new", b"a/link/new"), ("folder/a/b/new", b"nest/deep/b/new")):
                if (there / name).read_bytes() != content:
                    raise Failure(f"{name} differs on the server's disk")
            if (tree / "inner/new").exists():
                raise Failure("the file is on the wrong server")
        with ctx.check("rename behind a link"):
            client.run("mv", url("tree/a/link/new"), url("tree/a/link/a/renamed"))
            if not (there / "folder/a/renamed").exists() or (there / "folder/new").exists():
                raise Failure("the file was not renamed")
        with ctx.check("rename across a link"):
            for source, to in (("tree/plain", "tree/a/link/plain"), ("tree/a/link/copy", "tree/copy")):
                status, output = client.status("mv", url(source), url(to))
                if status != 2 or "use cp, then rm" not in output:
                    raise Failure(f"status {status}: {output}")
        with ctx.check("copy through a link"):
            client.run("cp", url("tree/plain"), url("tree/a/link/plain"))
            if (there / "folder/plain").read_bytes() != b"beside":
                raise Failure("the file was not copied")
        with ctx.check("remove"):
            client.run("rm", url("tree/a/link/plain"))
            if (there / "folder/plain").exists():
                raise Failure("the file was not removed")
            before = sorted(path.name for path in (there / "folder").rglob("*"))
            status, output = client.status("rm", "-r", url("tree"))
            if status == 0 or "DFS" not in output or not (tree / "plain").exists():
                raise Failure(f"status {status}: {output}")
            if sorted(path.name for path in (there / "folder").rglob("*")) != before:
                raise Failure("the target of a link was removed")
        if reason := no_fuse():
            ctx.add("mount", "skip", 0.0, reason)
        else:
            with ctx.check("mount"), mounted(ctx, "mounted", url=url("tree")) as here:
                if (here / "nest/deep/b/two").read_bytes() != (ctx.work / "one").read_bytes():
                    raise Failure("the file differs")
                (here / "a/link/by mount").write_bytes(b"written")
                os.rename(here / "a/link/by mount", here / "a/link/a/by mount")
                if (there / "folder/a/by mount").read_bytes() != b"written":
                    raise Failure("the file was not written")
                refused(errno.EXDEV, lambda: os.rename(here / "plain", here / "a/link/plain"))
                refused(errno.EINVAL, lambda: os.rmdir(here / "a/link"))
        with ctx.check("tree in a circle"):
            (tree / "inner/back").symlink_to(f"msdfs:{address}\\dfs\\tree")
            status, output = client.status("ls", "-R", url("tree"))
            if status != 1 or "leads back" not in output:
                raise Failure(f"status {status}: {output}")
        with ctx.check("not followed"):
            if client.run("cat", "--dfs", "never", url("tree/plain")) != "beside":
                raise Failure("wrong content")
            status, output = client.status("ls", "--dfs", "same-host", url("tree/a/link"))
            if status != 2:
                raise Failure(f"status {status}: {output}")
    finally:
        root.stop()
