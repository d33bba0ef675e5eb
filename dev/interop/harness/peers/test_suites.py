"""Test suites of other clients, run as they are: rclone, smbprotocol, smb-rs."""

import collections
import re
import subprocess
import time

from .. import suites
from ..model import group

# The password "Passw0rd" in the obscured form of rclone's configuration.
OBSCURED = "Af2kDToFeH1KejGpE5vA3vnLS1sC-isZ"

RESULTS = {"PASS": "pass", "FAIL": "fail"}


def word(name):
    """Returns a test's name without characters that patterns or tables treat specially."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "/._:+-") else "_" for c in name)


def version(ctx, text):
    """Adds a row that names the version of the client."""
    ctx.add("version", "pass", 0.0, text)


def output_of(ctx, command, timeout, **more):
    """Returns (status, output); when the time is over, what was printed until then."""
    try:
        return ctx.command(*command, timeout=timeout, **more)
    except subprocess.TimeoutExpired as e:
        return f"no end after {timeout} s", (e.output or b"").decode(errors="replace")


def go_rows(ctx, status, output):
    """Adds a row for each test of Go that has no tests below it, or that fails though all of these pass.

    A test that skips itself wants what the client lacks: it has no row.
    """
    found, said, running = {}, collections.defaultdict(list), ""
    for line in output.splitlines():
        if m := re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", line):
            found[m[2]] = (m[1], float(m[3]))
        elif m := re.match(r"=== (?:RUN|NAME|CONT) +(\S+)", line):
            running = m[1]
        else:
            said[running].append(line)
    failed = {n for n, (result, _) in found.items() if result == "FAIL"}
    parents = {n.rsplit("/", 1)[0] for n in found if "/" in n}
    for name, (result, seconds) in found.items():
        alone = name not in parents or (result == "FAIL" and not any(f.startswith(name + "/") for f in failed))
        if alone and result != "SKIP":
            detail = " ".join(" ".join(said[name]).split())[-280:] if result == "FAIL" else ""
            ctx.add(word(name), RESULTS[result], seconds, detail)
    if not found or (status and not failed):
        ctx.add("suite", "fail", 0.0, f"status {status}, {len(found)} tests seen: {output.strip()[-250:]}")


def rclone_environment(ctx):
    """Returns the environment in which rclone has a remote Peer; for TestSMB its tests would start a server."""
    server, configuration = ctx.server, ctx.work / "rclone.conf"
    configuration.write_text(
        f"[Peer]\ntype = smb\nhost = {server.address}\nport = {server.port}\nuser = {server.user}\npass = {OBSCURED}\n"
    )
    return {"RCLONE_CONFIG": str(configuration), "RCLONE_CACHE_DIR": str(ctx.work / "cache"), "HOME": str(ctx.work)}


def rclone(ctx, suite, seconds):
    """Runs the tests of one of rclone's packages against a folder of the share."""
    program = suites.RCLONE / suite
    if not program.exists():
        ctx.add("suite", "skip", 0.0, "Go is missing or too old to build it")
        return
    version(ctx, f"rclone {suites.RCLONE_VERSION}")
    remote = f"Peer:{ctx.server.share}/rclone"
    source = suites.RCLONE / "source" / suites.RCLONE_SUITES[suite]
    command = [program, "-test.v", f"-test.timeout={seconds}s", "-remote", remote]
    # TestIntegration2 and TestIntegration3 need a domain.
    command += ["-test.skip", "^TestIntegration[23]$"]
    go_rows(ctx, *output_of(ctx, command, seconds + 20, cwd=source, env=rclone_environment(ctx)))


# Each suite of rclone with its time limit in seconds. The tests of backend/smb run in the quick set
# as well.
for _suite, _seconds in (("backend-smb", 300), ("operations", 900), ("sync", 900), ("vfs", 600), ("bisync", 1500)):

    @group(
        f"rclone/{_suite}",
        full_only=_suite != "backend-smb",
        doc=f"rclone's own tests of {suites.RCLONE_SUITES[_suite]}",
    )
    def _rclone(ctx, suite=_suite, seconds=_seconds):
        rclone(ctx, suite, seconds)


@group("suites/smbprotocol", profile="suites", full_only=True)
def smbprotocol(ctx):
    """smbprotocol's own tests, with those of symbolic links."""
    version(ctx, f"smbprotocol {suites.SMBPROTOCOL_VERSION}")
    command = [suites.SMBPROTOCOL / "venv/bin/python", "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    # These modules test the client without a server, with constants and a fixture that the source
    # package lacks.
    command += [f"--ignore={suites.SMBPROTOCOL}/tests/test_{name}.py" for name in ("dfs", "smbclient_pool")]
    command += ["-k", "not closes_scandir_iterator"]
    # SMB_FORCE makes the tests use symbolic links, which smbd lacks.
    env = {"SMB_FORCE": "1"}
    status, output = output_of(ctx, [*command, suites.SMBPROTOCOL / "tests"], 600, env=env)
    seen = ctx.report(output)
    if len(seen) < 900:
        ctx.add("suite", "fail", 0.0, f"status {status}, {len(seen)} tests seen: {output.strip()[-250:]}")


# Seconds for one test of smb-rs, whose own time limit for an answer is 10 seconds.
SMB_RS_SECONDS = 60
# Number of smb-rs tests in this version.
SMB_RS_TESTS = 22


@group("suites/smb-rs", profile="suites", full_only=True)
def smb_rs(ctx):
    """The own tests of smb-rs (the crate smb)."""
    version(ctx, f"smb {suites.SMB_RS_VERSION}")
    server = ctx.server
    env = {
        "SMB_RUST_TESTS_SERVER": server.address,
        "SMB_RUST_TESTS_USER_NAME": server.user,
        "SMB_RUST_TESTS_PASSWORD": server.password,
    }
    # Some tests connect to 8.8.8.8 and expect no answer. This needs a route to the address.
    for words in ("route replace 8.8.8.8 dev tap3", "neigh replace 8.8.8.8 lladdr 02:00:00:00:00:01 dev tap3"):
        ctx.command("ip", *words.split())
    count = 0
    for program in sorted(suites.SMB_RS.glob("suite-*")):
        # Some test programs have no tests because their features are off.
        _, listed = ctx.command(program, "--list", "--format", "terse")
        for test in re.findall(r"^(\S+): test$", listed, re.M):
            name = word(f"{program.name.removeprefix('suite-')}/{test}")
            smb_rs_test(ctx, name, [program, "--exact", test], env)
            # Each test begins with empty shares.
            server.clear("MyShare", "PublicShare")
            count += 1
    if count < SMB_RS_TESTS:
        ctx.add("suite", "fail", 0.0, f"{count} tests seen, not {SMB_RS_TESTS}")


def smb_rs_test(ctx, name, command, env):
    """Runs one test in a process of its own: one that hangs keeps only itself from its end."""
    began = time.monotonic()
    status, output = output_of(ctx, command, SMB_RS_SECONDS, env=env)
    # Also require the summary line: a program that is given a wrong test name runs no test and
    # still succeeds.
    if status == 0 and "1 passed; 0 failed" in output:
        result, detail = "pass", ""
    elif status == 0 and "1 ignored" in output:
        result, detail = "skip", "the suite ignores it"
    else:
        said = re.search(r"^---- \S+ stdout ----\n(.*?)\n\n", output, re.M | re.S)
        result, detail = "fail", " ".join((said[1] if said else f"status {status}: {output}").split())[-280:]
    ctx.add(name, result, time.monotonic() - began, detail)
