"""Checks: groups of rows, and the context in which a group runs."""

import contextlib
import fnmatch
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "dev/interop"
OUT = ROOT / "target/interop"


class Failure(Exception):
    """A check found an answer of the peer or of the server wrong."""


class Skip(Exception):
    """A check cannot run on this machine: a tool or a feature is missing."""


@dataclass
class Row:
    """One line of the table: `result` is pass, fail or skip."""

    name: str
    result: str
    seconds: float = 0.0
    detail: str = ""
    verdict: str = ""  # filled in by the judge


@dataclass
class Group:
    """Checks that share a server profile and mostly a connection or a guest."""

    name: str
    profile: str
    run: object
    full_only: bool = False
    about: str = ""
    # Seconds that the group takes on smbd, for a group that mostly waits. Such groups run in
    # parallel, even more of them than the machine has cores.
    beside: float | None = None
    # True if the group runs only when `--only` names it.
    named_only: bool = False
    # The first release of Samba with this suite, if it is newer than the default release.
    samba: str | None = None
    # Seconds that a long group takes: longer groups start earlier.
    seconds: float = 0.0


GROUPS: list[Group] = []


def group(
    name, *, profile="default", full_only=False, beside=None, named_only=False, doc=None, samba=None, seconds=0.0
):
    """Registers a function that takes a Context as the group `name`; `doc` describes it instead of its docstring."""

    def register(function):
        about = (doc or function.__doc__ or "").strip().splitlines()
        first = about[0] if about else ""
        GROUPS.append(Group(name, profile, function, full_only, first, beside, named_only, samba, seconds))
        return function

    return register


def selects(patterns, name):
    """Returns True if `patterns` select the row `name`; a pattern selects all rows under it, no pattern selects all."""
    return not patterns or any(fnmatch.fnmatchcase(name, p) or fnmatch.fnmatchcase(name, p + "/*") for p in patterns)


def may_select(patterns, group_name):
    """Returns True if `patterns` may select a row of this group."""
    depth = group_name.count("/") + 1
    return selects(patterns, group_name) or any(
        fnmatch.fnmatchcase(group_name, "/".join(p.split("/")[:depth])) or fnmatch.fnmatchcase(group_name + "/", p)
        for p in patterns
    )


@dataclass
class Context:
    """A running group: its server, its scratch directory, its rows so far."""

    group: Group
    server: object
    full: bool
    patterns: list
    work: Path  # scratch of this group, on the host
    log: object
    rows: list = field(default_factory=list)

    def add(self, name, result, seconds=0.0, detail=""):
        """Adds a finished row; `name` is relative to the group."""
        name = f"{self.group.name}/{name}"
        if selects(self.patterns, name):
            detail = " ".join(str(detail).split())[:300]
            self.rows.append(Row(name, result, seconds, detail))
            # Print each result with one write, so that the lines of parallel groups do not mix.
            print(f"  {result:4} {name} {seconds:.1f} s{'  ' + detail if detail else ''}\n", end="", flush=True)

    @contextlib.contextmanager
    def check(self, name):
        """`with ctx.check("rename"): ...` is a row; an exception fails it."""
        began = time.monotonic()
        self.log.write(f"--- {self.group.name}/{name}\n")
        result, detail = "pass", ""
        try:
            yield
        except Skip as e:
            result, detail = "skip", e
        except subprocess.TimeoutExpired as e:
            result, detail = "fail", f"no end after {e.timeout:.0f} s"
        except (Failure, OSError, subprocess.SubprocessError, UnicodeError) as e:
            result, detail = "fail", f"{type(e).__name__}: {e}" if not isinstance(e, Failure) else e
        if result != "pass":
            self.log.write(f"{result}: {detail}\n")
        self.log.flush()
        self.add(name, result, time.monotonic() - began, detail)

    def command(self, *args, timeout=60, env=None, cwd=None, **more):
        """Runs a program to its end and logs its output; returns (status, output)."""
        args = [str(a) for a in args]
        self.log.write("$ " + " ".join(args).replace(self.server.password, "***") + "\n")
        began = time.monotonic()
        try:
            done = subprocess.run(
                args,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                env={**os.environ, **self.server.environment(), **(env or {})},
                cwd=cwd or self.work,
                **more,
            )
        except subprocess.TimeoutExpired as e:
            self.log.write((e.output or b"").decode(errors="replace"))
            raise
        output = done.stdout.decode(errors="replace")
        self.log.write(f"{output}[status {done.returncode}, {time.monotonic() - began:.2f} s]\n")
        self.log.flush()
        return done.returncode, output

    def report(self, output, needed=()):
        """Adds a row for each line `ok|FAIL|skip NAME SECONDS [DETAIL]`; a name of `needed` without a line fails."""
        seen = set()
        for line in output.splitlines():
            words = line.split(maxsplit=3)
            if len(words) >= 3 and words[0] in ("ok", "FAIL", "skip"):
                seen.add(words[1])
                result = {"ok": "pass", "FAIL": "fail", "skip": "skip"}[words[0]]
                with contextlib.suppress(ValueError):
                    self.add(words[1], result, float(words[2]), words[3] if len(words) > 3 else "")
        for name in needed:
            if name not in seen:
                self.add(name, "fail", 0.0, "the peer ended before it")
        return seen


def require_tool(name):
    """Returns the path of a program; raises Skip if it is not installed."""
    path = shutil.which(name)
    if not path:
        raise Skip(f"{name} is not installed")
    return path
