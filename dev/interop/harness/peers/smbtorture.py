"""Samba's smbtorture: a row per test, judged one by one."""

import collections
import concurrent.futures
import fnmatch
import os
import re
import shutil
import subprocess

from ..model import HERE, Failure, group, selects
from ..realm import HOST, REALM, inside

# Each suite with its time limit: twice its seconds on smbd, rounded up. `session` sends wrong
# passwords, which Frevo delays.
QUICK = {
    "smb2.connect": 30,
    "smb2.tcon": 30,
    "smb2.read": 30,
    "smb2.rw": 30,
    "smb2.create": 60,
    "smb2.mkdir": 30,
    "smb2.getinfo": 30,
    "smb2.setinfo": 30,
    "smb2.dir": 90,
    "smb2.rename": 30,
    "smb2.compound": 60,
    "smb2.credits": 30,
    "smb2.session": 180,
    "smb2.session-id": 30,
    "smb2.delete-on-close-perms": 30,
    "smb2.sharemode": 30,
    "smb2.deny": 30,
    "smb2.maximum_allowed": 30,
    "smb2.lock": 60,
    "smb2.fileid": 30,
    "smb2.openattr": 30,
    "smb2.winattr": 30,
    "smb2.sdread": 30,
    "smb2.acls": 30,
    "smb2.streams": 30,
    "smb2.charset": 30,
    "smb2.durable-open": 30,
    "smb2.durable-v2-open": 30,
    "smb2.ioctl": 60,
    "smb2.compound_find": 60,
    "smb2.timestamps": 60,
    "smb2.dosmode": 30,
    "smb2.ea": 30,
}
FULL = {
    "smb2.lease": 400,
    "smb2.oplock": 300,
    "smb2.notify": 240,
    "smb2.replay": 420,
    "smb2.multichannel": 420,
    "smb2.compound_async": 60,
    "smb2.durable-open-disconnect": 60,
    "smb2.durable-v2-delay": 60,
    "smb2.scan": 120,
    "smb2.maxfid": 120,
    "smb2.secleak": 60,
    "smb2.mangle": 30,
    "smb2.twrp": 30,
    "smb2.ioctl-on-stream": 30,
    "smb2.set-sparse-ioctl": 30,
    "smb2.zero-data-ioctl": 30,
    "smb2.async_dosmode": 30,
    "smb2.notify-inotify": 30,
    "smb2.timestamp_resolution": 30,
    "smb2.create_no_streams": 30,
    "smb2.acls_non_canonical": 30,
    "smb2.samba3misc": 30,
    "smb2.session-require-signing": 30,
    "smb2.aio_delay": 30,
    "smb2.change_notify_disabled": 30,
    "smb2.kernel-oplocks": 60,
}
# Suites of newer Samba releases, which run only with `--samba`.
NEWER = {
    "smb2.dirlease": 300,
    "smb2.name-mangling": 60,
    "smb2.durable-v2-regressions": 60,
    "smb2.winattr2": 30,
    "smb2.stream-inherit-perms": 30,
    "smb2.bench": 180,
}
# Suites that only Samba 4.25 has.
NEWEST = {
    "smb2.acls-with-sysacl": 60,
    "smb2.acls-ignore-sysacl": 60,
    "smb2.mkdir-long-name": 30,
    "smb2.persistent-open": 120,
    "smb2.persistent-open-failover": 60,
    "smb2.persistent-open-reconnect-contended": 180,
}
# The tests hold-oplock, hold-sharemode and check-sharemode are left out: they never end.

# Suites that need a share with special settings. with-samba and with-frevo make these shares.
SHARES = {
    "smb2.change_notify_disabled": "nonotify",
    "smb2.kernel-oplocks": "kernel_oplocks",
    "smb2.twrp": "snapshots",
    "smb2.acls_non_canonical": "noncanonical",
    "smb2.acls-ignore-sysacl": "ignoresysacl",
    "smb2.ea": "rootless",
    "smb2.create_no_streams": "nostreams",
    "smb2.samba3misc": "posixlocks",
    "smb2.dosmode": "hidefiles",
    "smb2.persistent-open": "continuous",
    "smb2.persistent-open-failover": "continuous",
    "smb2.persistent-open-reconnect-contended": "continuous",
    "vfs.fruit": "fruit",
    "vfs.fruit_netatalk": "fruit",
    "vfs.fruit_conversion": "fruit",
    "vfs.fruit_file_id": "fruit_zero_id",
    "vfs.fruit_timemachine": "backups",
}
# Single tests that need a special share: for shared extents, compression or snapshots.
APART = {
    "smb2.ioctl.dup_extents_*": "extents",
    "smb2.ioctl.compress_[!n]*": "extents",
    "smb2.ioctl.sparse_compressed": "extents",
    "smb2.ioctl.shadow_copy": "snapshots",
    "smb2.read.position": "torture",
    "smb2.create.gentest": "torture",
    "smb2.create.path-length": "torture",
    "smb2.replay.replay5": "continuous",
    "smb2.timestamps.delayed-*": "late",
    "smb2.session.expire2*": "share",
}
# Tests whose tickets expire after some seconds. They need a Kerberos realm, and mostly wait.
WITH_TICKETS = "smb2.session.expire*"
TICKET_SECONDS = 120
PROFILES = {"smb2.session-require-signing": "torture-signed", "smb2.change_notify_disabled": "torture-nonotify"}
# Further options for single suites. snapshot() makes the snapshot with this stamp.
STAMP = "@GMT-2015.10.31-19.40.30"
OPTIONS = {
    "smb2.twrp": [
        f"torture:twrp_snapshot={STAMP}",
        "torture:twrp_file=file",
        "torture:twrp_stream=stream",
        "torture:twrp_stream_size=11",
    ],
    # "interactive" only makes the test run: it asks for no input.
    "smb2.create.path-length": ["torture:interactive=yes"],
    # A server without CAP_SYS_ADMIN keeps security descriptors in the attribute `user.NTACL`.
    "smb2.ea": ["torture:acl_xattr_name=NTACL"],
}
# Options that tell smbtorture where the server behaves like Windows and unlike smbd.
AS_WINDOWS = {
    # A handle without a synchronous-I/O option has no current position (MS-FSA 2.1.5.3).
    "smb2.read.position": ["torture:windows=yes"],
    # SYNCHRONIZE alone is enough to open a file: MS-FSA 2.1.5.1 refuses only the bits of
    # 0x0CE0FE00.
    "smb2.create.gentest": ["torture:win7=yes"],
    # Only a request that can take long is answered asynchronously within a compound: MS-SMB2
    # 3.3.4.2 leaves this to the server.
    "smb2.compound_async*": ["torture:smbd=no"],
}
LISTS = {}


def short_name(suite, test):
    """Returns a test's name relative to its suite; the only test of a suite has the suite's name."""
    return (test if test != suite else "." + suite).removeprefix(suite + ".").rsplit("smb2.", 1)[-1]


def apart(test):
    """Returns the share that this test needs, or None for the default."""
    return next((share for pattern, share in APART.items() if fnmatch.fnmatchcase(test, pattern)), None)


def program(server):
    """Returns the command of smbtorture, Debian's own or that of another release."""
    return [str(HERE / "newer-samba"), "-x", server.samba, "smbtorture"] if server.samba else ["smbtorture"]


def listing(ctx, suite):
    """Returns the full names of a suite's tests, as smbtorture runs them."""
    if suite not in LISTS:
        _, output = ctx.command(*program(ctx.server), "--list", suite)
        names = [line.strip().split(".") for line in output.splitlines() if line.startswith(("smb2.", "vfs."))]
        # If a case has one test of the same name, smbtorture lists it as suite.case.case but runs
        # it as suite.case.
        full = [".".join(n[:-1] if n[-1] == n[-2] and len(n) > 3 else n) for n in names]
        # --list also prints suites whose name begins with this suite's name.
        LISTS[suite] = [n for n in full if n == suite or n.startswith(suite + ".")] or [suite]
    return LISTS[suite]


def torture(ctx, what, seconds, prefix=(), more=(), at=None):
    """Runs a suite or a test; returns {name as smbtorture prints it: [result, seconds, reason]}.

    With `prefix`, a command that runs another one in a realm, it logs on by Kerberos. `more` are further arguments,
    `at` another command of smbtorture and the name of the server for it.
    """
    server = ctx.server
    scratch = ctx.work / f"smbtorture-{what}"
    scratch.mkdir(exist_ok=True)
    user2 = server.user2
    options = [
        "torture:progress=no",
        f"torture:localdir={server.path2}",
        f"torture:user2name={user2}",
        f"torture:user2password={server.password}",
        # filename and offset are for two tests that are meant to be driven by a script
        "torture:filename=driven.bin",
        "torture:offset=0",
        "torture:beyond_final_zero=4096",
        "torture:open_brlock_deadlock_timemout=20",
    ]
    suite = next((s for s in SHARES | OPTIONS if what == s or what.startswith(s + ".")), None)
    options += OPTIONS.get(suite, [])
    if server.kind == "frevo":
        options += [o for pattern, more in AS_WINDOWS.items() if fnmatch.fnmatchcase(what, pattern) for o in more]
    share = apart(what) or SHARES.get(suite, "torture")
    if share == "late" and server.samba == "4.25":
        # In Samba 4.25 all tests of this suite expect write times that change at once.
        share = "torture"
    command = [
        *prefix,
        *(map(str, at[0]) if at else program(server)),
        f"--basedir={scratch}",
        f"//{HOST if prefix else at[1] if at else server.address}/{share}",
        *([] if at else ["-p", str(server.port)]),
        *([f"--realm={REALM}", "--use-kerberos=required"] if prefix else []),
        f"-U{server.user}%{server.password}",
        "--format=subunit",
        "--target=samba3",
        f"--extra-user={user2}%{server.password}",
        *[f"--option={o}" for o in options],
        *more,
        what,
    ]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    try:
        output, over = child.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        output, over = child.communicate()[0], True
    ctx.log.write(f"$ smbtorture ... {what}\n{output}")
    ctx.log.flush()
    shutil.rmtree(scratch, ignore_errors=True)
    return parse(output, over, child.returncode)


def parse(output, over, status):
    """Reads smbtorture's subunit stream."""
    results, current, reason, times, started = {}, None, None, [0.0], 0.0
    for line in output.splitlines():
        stamp = re.match(r"time: \S+ (\d+):(\d+):([\d.]+)", line)
        if stamp:
            times.append(int(stamp[1]) * 3600 + int(stamp[2]) * 60 + float(stamp[3]))
            continue
        m = re.match(r"(test|success|failure|error|skip|xfail|uxsuccess): (.+?)( \[)?$", line)
        if m and m[1] == "test":
            current, started = m[2], times[-1]
        elif m:
            results[m[2]] = [m[1], max(0.0, times[-1] - started), ""]
            reason, current = (results[m[2]] if m[3] else None), None
        elif line.startswith("]"):
            reason = None
        elif reason is not None and not reason[2] and not line.startswith("progress:"):
            reason[2] = line.strip()
    if current:
        why = "no end within the suite's time" if over else f"smbtorture ended with {status}"
        results[current] = ["timeout" if over else "error", 0.0, why]
    return results


NOT_RUN = ("notrun", 0.0, "the suite ended before it")
WORDS = {"success": "pass", "uxsuccess": "pass", "xfail": "fail", "skip": "skip"}


def rows(ctx, suite, tests, found):
    """Adds a row for each test of the suite, also for tests that did not run."""
    for test in tests:
        names = (test, short_name(suite, test), test.rsplit(".", 1)[-1])
        hit = next((found[n] for n in names if n in found), None)
        result, seconds, reason = hit or NOT_RUN
        if result not in WORDS and not reason.startswith(("no end", "smbtorture ended", "the suite ended")):
            reason = re.sub(r"^\(?(\.\./)+source\d/torture/([^)]*)\)?", r"\2", reason)
        ctx.add(short_name(suite, test), WORDS.get(result, "fail"), seconds, reason if result != "success" else "")


def snapshot(ctx):
    """Makes a snapshot folder in the place where the share looks for snapshots."""
    for root in (ctx.server.path2, ctx.server.path2 / ".snapshots" / STAMP):
        (root / "subdir").mkdir(parents=True)
        for name in ("file", "subdir/hardlink"):
            path = root / name
            path.write_text("as it was\n")
            path.chmod(0o666)
            os.setxattr(path, "user.DosStream.stream:$DATA", b"of the past\0")


def expiring(ctx, suite, tests):
    """Runs tests with tickets that end, most of them at one time: a change notification must not see other tests."""
    alone = [t for t in tests if apart(t)]
    lines = [*([t] for t in tests if t not in alone), alone]
    with inside(ctx.server) as prefix, concurrent.futures.ThreadPoolExecutor(len(lines)) as pool:
        found = pool.map(lambda line: [torture(ctx, test, TICKET_SECONDS, prefix) for test in line], lines)
        for line, results in zip(lines, found, strict=True):
            for test, result in zip(line, results, strict=True):
                rows(ctx, suite, [test], result)


def run_suite(ctx, suite, seconds):
    tests = listing(ctx, suite)
    if suite == "smb2.mangle" and ctx.server.samba:
        return  # it is smb2.name-mangling now
    if suite == "smb2.acls" and ctx.server.samba == "4.25":
        return  # it is smb2.acls-with-sysacl and smb2.acls-ignore-sysacl now
    if suite == "smb2.twrp":
        snapshot(ctx)
    if suite == "smb2.zero-data-ioctl":
        torture(ctx, "smb2.set-sparse-ioctl", seconds)  # it makes the file
    wanted = [t for t in tests if selects(ctx.patterns, f"{ctx.group.name}/{short_name(suite, t)}")]
    with_tickets = [t for t in wanted if fnmatch.fnmatchcase(t, WITH_TICKETS)]
    tests = [t for t in tests if not fnmatch.fnmatchcase(t, WITH_TICKETS)]
    wanted = [t for t in wanted if t in tests]
    if not with_tickets:
        run_tests(ctx, suite, tests, wanted, seconds)
        return
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        expired = beside.submit(expiring, ctx, suite, with_tickets)
        run_tests(ctx, suite, tests, wanted, seconds)
        expired.result()


def run_tests(ctx, suite, tests, wanted, seconds):
    """Runs the wanted ones of a suite's tests."""
    if not wanted:
        return
    # Tests may depend on earlier tests, so only a short selection runs one by one.
    if len(wanted) < len(tests):
        for test in wanted:
            rows(ctx, suite, [test], torture(ctx, test, seconds))
        return
    found = torture(ctx, suite, seconds * (4 if ctx.server.samba else 1))
    if not found and len(tests) > 1:
        raise Failure(f"smbtorture printed nothing about {suite}")
    together = [t for t in tests if not apart(t)]
    for test in together if ctx.server.samba else []:
        # Newer releases end a suite after a failure: run the remaining tests one by one.
        if not {test, short_name(suite, test), test.rsplit(".", 1)[-1]} & set(found):
            found |= dict.fromkeys([test], next(reversed(torture(ctx, test, 60).values()), None) or NOT_RUN)
    rows(ctx, suite, together, found)
    for test in filter(apart, tests):
        rows(ctx, suite, [test], torture(ctx, test, seconds))


def usual_seconds():
    """Returns {suite: seconds on smbd}; long suites start first."""
    seconds = collections.Counter()
    with open(HERE / "baseline-smbd-4.17.tsv") as f:
        for line in f.readlines()[1:]:
            name, _, took, *_ = line.rstrip("\n").split("\t")
            if name.startswith("smbtorture/"):
                seconds["smb2." + name.split("/")[1]] += float(took)
    return seconds


def register(suites, full_only, samba=None):
    usual = usual_seconds()
    for suite, seconds in suites.items():
        name = suite.removeprefix("smb2.")

        def run(ctx, suite=suite, seconds=seconds):
            run_suite(ctx, suite, seconds)

        run.__doc__ = f"{suite}, at most {seconds} s"
        group(
            f"smbtorture/{name}",
            profile=PROFILES.get(suite, "torture"),
            full_only=full_only,
            beside=usual[suite],
            samba=samba,
        )(run)


register(QUICK, False)
register(FULL, True)
register(NEWER, True, "4.22")
register(NEWEST, True, "4.25")
