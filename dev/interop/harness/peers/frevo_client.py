"""Frevo's own client against the server: every command, in every protection and dialect.

The client refuses what it was not told to accept, so that a variant that works is the
variant that was in use.
"""
import json
import os
import shutil

from .. import trees
from ..model import OUT, Failure, group

# name, profile, arguments
VARIANTS = [
    ("3.1.1-default", "default", []),
    *[(f"3.1.1-signed-{name}", "default", ["--signing", name]) for name in ("aes-gmac", "aes-cmac", "hmac-sha256")],
    *[(f"3.1.1-sealed-{name}", "default", ["-e", "--cipher", name])
      for name in ("aes-128-gcm", "aes-128-ccm", "aes-256-gcm", "aes-256-ccm")],
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
    """The binary with one variant's arguments."""

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


def everything(ctx, options):
    """Every command once, compared with the server's disk."""
    client, there = Client(ctx, options), ctx.server.path
    with ctx.check("shares"):
        output = client.run("shares", client.url().rsplit("/", 2)[0])
        if ctx.server.share not in output.split():
            raise Failure(output)
    with ctx.check("sizes"):
        for size in (0, 1, 4096, 65_536, 65_537, 1_048_577, 30_000_000):
            data = os.urandom(size)
            (ctx.work / "one").write_bytes(data)
            client.run("put", "one", client.url(f"size {size}"))
            if (there / f"size {size}").read_bytes() != data:
                raise Failure(f"{size} bytes differ on the server's disk")
            client.run("get", client.url(f"size {size}"), "back")
            if (ctx.work / "back").read_bytes() != data:
                raise Failure(f"{size} bytes differ when they come back")
    with ctx.check("tree"):
        here = ctx.work / "tree"
        for at in range(150):
            folder = here / f"d{at % 5}" / "é ü"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file {at}").write_bytes(os.urandom(at * 700))
        client.run("put", "-r", "tree", client.url())
        trees.same_tree(here, there / "tree")
        client.run("get", "-r", client.url("tree"), "tree-back")
        trees.same_tree(here, ctx.work / "tree-back")
    with ctx.check("copy on the server"):
        client.run("cp", client.url("size 30000000"), client.url("copy"))
        if (there / "copy").read_bytes() != (there / "size 30000000").read_bytes():
            raise Failure("the copy differs")
        client.run("cp", "-r", client.url("tree"), client.url("tree-copy"))
        trees.same_tree(ctx.work / "tree", there / "tree-copy")
    with ctx.check("sync"):
        client.run("sync", "tree", client.url("synced"))
        trees.same_tree(ctx.work / "tree", there / "synced")
        if output := client.run("sync", "-n", "tree", client.url("synced")).strip():
            raise Failure(f"not the same afterwards: {output[:200]}")
        (there / "synced" / "more").write_bytes(b"x")
        client.run("sync", "--delete", "--checksum", "tree", client.url("synced"))
        trees.same_tree(ctx.work / "tree", there / "synced")
    with ctx.check("names"):
        client.run("mkdir", "-p", client.url("a/b/c"))
        client.run("mv", client.url("copy"), client.url("a/b"))
        if not (there / "a/b/copy").exists():
            raise Failure("it was not moved")
        listed = [json.loads(line) for line in client.run("ls", "--json", "-R", client.url("a")).splitlines()]
        if {(e["path"], e["type"]) for e in listed} != {
            ("a/b", "directory"), ("a/b/c", "directory"), ("a/b/copy", "file")
        }:
            raise Failure(f"{listed}")
        if "a/b/copy" not in client.run("find", client.url(), "--name", "COPY", "--type", "f"):
            raise Failure("it was not found")
        client.run("stat", client.url("a/b/copy"))
        client.run("tree", client.url("a"))
        client.run("acl", client.url("a/b/copy"))
        client.run("rm", "-r", client.url("a"), client.url("tree"), client.url("tree-copy"))
        if (there / "a").exists() or (there / "tree").exists():
            raise Failure("it was not removed")
    with ctx.check("cat"):
        if client.run("cat", client.url("size 1"), client.url("size 0")).encode(errors="replace") is None:
            raise Failure("nothing")
    with ctx.check("refusals"):
        client.refused(6, "ls", client.url("nothing"))
        client.refused(4, "ls", client.url(), password="wrong")
    for path in there.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


for name, profile, options in VARIANTS:
    def run(ctx, options=options):
        everything(ctx, options)

    run.__doc__ = f"Frevo's client: {name}"
    group(f"client/{name}", profile=profile, full_only=name not in QUICK)(run)
