"""Backup programs, git and SQLite at work on a mount of the share: `frevo mount` and `rclone mount`."""

import contextlib
import os
import re
import shutil
import subprocess

from .. import suites, trees
from ..model import Failure, Skip, group, require_tool
from .cifs import repository
from .mount.fixture import PATIENCE, equal, mounted, no_fuse, until
from .test_suites import rclone_environment

GIT = ["git", "-c", "safe.directory=*", "-c", "user.name=Frevo", "-c", "user.email=frevo@localhost"]


def done(ctx, *command, **more):
    """Runs a program that must succeed; returns what it printed."""
    status, output = ctx.command(*command, **{"timeout": 240, **more})
    if status:
        raise Failure(f"{command[0]}: status {status}: {output.strip()[-250:]}")
    return output


def git(ctx, here, there):
    """Clones, commits, packs and verifies, on the mount and then on the server's disk."""
    source = repository(ctx)
    done(ctx, *GIT, "clone", "-q", "--no-hardlinks", f"file://{source}", here / "clone")
    clone = [*GIT, "-C", here / "clone"]
    for number in range(3):
        (here / "clone" / f"new {number}").write_text(f"line {number}\n")
        done(ctx, *clone, "add", "-A")
        done(ctx, *clone, "commit", "-q", "-m", f"more {number}")
    done(ctx, *clone, "checkout", "-q", "-b", "side", "HEAD~2")
    done(ctx, *clone, "merge", "-q", "--no-edit", "main")
    done(ctx, *clone, "gc", "-q")
    done(ctx, *clone, "fsck", "--full", "--strict")
    equal(done(ctx, *clone, "status", "--porcelain").strip(), "", "status")
    return ["git", "-c", "safe.directory=*", "-C", there / "clone", "fsck", "--full", "--strict"]


SQL = "".join(
    "BEGIN;" + "".join(f"INSERT INTO t(v) VALUES('row {b}-{i}');" for i in range(50)) + "COMMIT;\n" for b in range(10)
)
QUERY = "PRAGMA integrity_check; SELECT count(*), sum(id), max(v) FROM t;"


def sqlite(ctx, here, there):
    """Writes a database with a rollback journal; deletes, updates and shrinks it."""
    (ctx.work / "work.sql").write_text(
        "PRAGMA journal_mode=DELETE; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);\n"
        + SQL
        + "CREATE INDEX v ON t(v); DELETE FROM t WHERE id % 3 = 0;\n"
        + "UPDATE t SET v = v || 'x' WHERE id % 5 = 0; VACUUM;\n"
    )
    done(ctx, "sh", "-c", f"sqlite3 '{ctx.work}/local.db' < '{ctx.work}/work.sql'")
    local = done(ctx, "sqlite3", ctx.work / "local.db", QUERY)
    done(ctx, "sh", "-c", f"sqlite3 '{here}/work.db' < '{ctx.work}/work.sql'")
    equal(done(ctx, "sqlite3", here / "work.db", QUERY), local, "through the mount")
    return ["sqlite3", there / "work.db", "PRAGMA integrity_check;"]


def restic(ctx, here, there):
    """Backs a tree up twice into a repository on the mount, verifies all data, restores and prunes."""
    program = require_tool("restic")
    tree = trees.named_tree(ctx.work / "tree")
    env = {"RESTIC_PASSWORD": "secret", "RESTIC_CACHE_DIR": str(ctx.work / "restic-cache")}
    command = [program, "-r", here / "restic"]
    done(ctx, *command, "init", env=env)
    done(ctx, *command, "backup", tree, env=env)
    trees.fill(tree / "added", 3_000_000, 77)
    done(ctx, *command, "backup", tree, env=env)
    done(ctx, *command, "check", "--read-data", env=env)
    back = ctx.work / "restored"
    done(ctx, *command, "restore", "latest", "--target", back, env=env)
    trees.same_tree(tree, back / tree.relative_to("/"))
    done(ctx, *command, "forget", "--keep-last", "1", "--prune", env=env)
    shutil.rmtree(tree)
    return ["env", *(f"{k}={v}" for k, v in env.items()), program, "-r", there / "restic", "check", "--read-data"]


def borg(ctx, here, there):
    """Backs a tree up twice into an encrypted repository on the mount, verifies, extracts and compacts."""
    program = require_tool("borg")
    tree = trees.named_tree(ctx.work / "tree")
    env = {
        "BORG_PASSPHRASE": "secret",
        "BORG_BASE_DIR": str(ctx.work / "borg"),
        "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
        "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
    }
    at = here / "borg"
    done(ctx, program, "init", "-e", "repokey", at, env=env)
    done(ctx, program, "create", f"{at}::first", ".", env=env, cwd=tree)
    trees.fill(tree / "added", 3_000_000, 77)
    done(ctx, program, "create", f"{at}::second", ".", env=env, cwd=tree)
    done(ctx, program, "check", "--verify-data", at, env=env)
    back = ctx.work / "extracted"
    back.mkdir()
    done(ctx, program, "extract", f"{at}::second", env=env, cwd=back)
    trees.same_tree(tree, back)
    done(ctx, program, "delete", f"{at}::first", env=env)
    done(ctx, program, "compact", at, env=env)
    shutil.rmtree(tree)
    shutil.rmtree(back)
    # borg's local cache records the path of the repository, which differs on the server's host.
    shutil.rmtree(ctx.work / "borg/.cache", ignore_errors=True)
    return ["env", *(f"{k}={v}" for k, v in env.items()), program, "check", "--verify-data", there / "borg"]


@contextlib.contextmanager
def rclone_mounted(ctx):
    """A mount by rclone; its cache writes files back a second after they are closed.

    Without that second it loses files that are renamed while it sends them, git's HEAD.lock for one, with any server.
    """
    program = suites.RCLONE / "mount"
    if not program.exists():
        raise Skip("Go is missing or too old to build rclone")
    folder, said = ctx.work / "rclone", ctx.work / "rclone.said"
    folder.mkdir(exist_ok=True)
    command = [program, "mount", f"Peer:{ctx.server.share}", folder, "--vfs-cache-mode", "full"]
    command += ["--vfs-write-back", "1s", "--vfs-cache-poll-interval", "1s", "--inplace", "-vv"]
    env = {**os.environ, **rclone_environment(ctx)}
    with open(said, "w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
    try:
        until("mounted", lambda: os.path.ismount(folder) or process.poll() is not None)
        if not os.path.ismount(folder):
            raise Failure(f"not mounted: {said.read_text()[-250:]}")
        yield folder
        # rclone uploads a closed file later. Each second its log says how many uploads are left.
        seen = len(said.read_text())
        until("uploaded", lambda: "in use 0, to upload 0, uploading 0" in said.read_text()[seen:])
        subprocess.run(["umount", folder], check=True)
        process.wait(PATIENCE)
    finally:
        if os.path.ismount(folder):
            subprocess.run(["umount", "-l", folder], check=False)
        if process.poll() is None:
            process.kill()
            process.wait()


PROGRAMS = {"git": git, "sqlite3": sqlite, "restic": restic, "borg": borg}


def work(ctx, mount):
    """Runs each program on a mount of its own, and then its verification on the server's disk."""
    if why := no_fuse():
        ctx.add("fuse", "skip", 0.0, why)
        return
    for name, program in PROGRAMS.items():
        with ctx.check(name):
            require_tool(name)
            with mount(ctx) as here:
                verification = program(ctx, here, ctx.server.path)
            done(ctx, *verification)
        for made in ("repository", "tree", "restored", "extracted"):
            shutil.rmtree(ctx.work / made, ignore_errors=True)


def versions(ctx, *also):
    """Adds a row with the version of each program."""
    asked = {"git": "--version", "sqlite3": "--version", "restic": "version", "borg": "--version"}
    for name, argument in asked.items():
        if shutil.which(name):
            said = re.search(r"[0-9]+[.][0-9.]*[0-9]", done(ctx, name, argument))
            ctx.add(f"{name}-version", "pass", 0.0, f"{name} {said[0]}")
    for name, version in also:
        ctx.add(f"{name}-version", "pass", 0.0, version)


@group("programs/frevo-mount", full_only=True)
def frevo_mount(ctx):
    """git, SQLite, restic and borg on `frevo mount`."""
    versions(ctx)
    work(ctx, mounted)


@group("programs/rclone-mount", full_only=True)
def rclone_mount(ctx):
    """git, SQLite, restic and borg on `rclone mount`."""
    versions(ctx, ("rclone", f"rclone {suites.RCLONE_VERSION}"))
    work(ctx, rclone_mounted)
