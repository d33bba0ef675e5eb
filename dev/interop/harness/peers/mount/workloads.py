"""Ordinary programs that work on a mount: fsx, git, cargo."""

import os
import shutil

from ... import trees
from ...model import OUT, Failure
from ..cifs import repository
from .fixture import equal

FSX = OUT / "tools/bin/fsx"


GIT = ["git", "-c", "safe.directory=*"]


def run_fsx(ctx, folder, operations):
    config = ctx.work / "fsx.toml"
    config.write_text("[weights]\nclose_open = 0.3\nfsync = 0.1\n")
    status, output = ctx.command(
        FSX, "-q", "-N", operations, "-S", "7", "-f", config, "-P", ctx.work, "fsx.bin", cwd=folder, timeout=900
    )
    if status or "All operations completed A-OK" not in output:
        raise Failure(output.strip()[-250:])
    os.unlink(folder / "fsx.bin")


def programs(ctx, here, there):
    """Runs git and cargo on the mount."""
    source = repository(ctx)
    crate = source / "crate"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n')
    (crate / "src/lib.rs").write_text("pub fn answer() -> u32 { 42 }\n")
    (crate / "src/main.rs").write_text('fn main() { println!("{}", small::answer()); }\n')
    commit = [*GIT, "-c", "user.name=Frevo", "-c", "user.email=frevo@localhost", "-C", source]
    ctx.command(*commit, "add", "-A")
    ctx.command(*commit, "commit", "-q", "-m", "a crate")
    with ctx.check("git-clone"):
        for command in (
            ["clone", "-q", "--no-hardlinks", f"file://{source}", here / "clone"],
            ["-C", here / "clone", "fsck", "--full", "--strict"],
        ):
            status, output = ctx.command(*GIT, *command, timeout=120)
            if status:
                raise Failure(output.strip()[-250:])
        status, output = ctx.command(*GIT, "-C", here / "clone", "status", "--porcelain")
        if status or output.strip():
            raise Failure(f"status: {output.strip()[-200:]}")
        mine = {k: v for k, v in trees.digest(source).items() if not k.startswith(b".git")}
        equal(
            {k: v for k, v in trees.digest(there / "clone").items() if not k.startswith(b".git")} == mine,
            True,
            "the same on disk",
        )
    with ctx.check("cargo-build"):
        for wanted in ("Compiling", "Finished"):
            status, output = ctx.command(
                "cargo",
                "build",
                "--offline",
                cwd=here / "clone/crate",
                timeout=300,
                env={"CARGO_TARGET_DIR": str(here / "clone/crate/target")},
            )
            if status or wanted not in output:
                raise Failure(output.strip()[-250:])
        if "Compiling" in output:
            raise Failure("cargo builds again without a change")
        status, output = ctx.command(here / "clone/crate/target/debug/small")
        equal(output.strip(), "42", "the program")
    shutil.rmtree(here / "clone")
