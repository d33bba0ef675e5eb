"""Fixtures of smbprotocol's own tests, which its source package lacks: a server, and a new folder for each test.

Each result becomes a line `ok|FAIL|skip NAME SECONDS [REASON]`, for the harness.
"""

import os
import secrets
import time

import pytest
import smbclient
from smbclient.shutil import rmtree


@pytest.fixture(scope="session")
def smb_real():
    """User, password, server, port, a share, and a share that demands encryption."""
    environ = os.environ
    share = rf"\\{environ['SMB_ADDR']}\{environ['SMB_SHARE']}"
    return (
        environ["SMB_USER"],
        environ["SMB_PASS"],
        environ["SMB_ADDR"],
        int(environ["SMB_PORT"]),
        share,
        f"{share}-encrypted",
    )


@pytest.fixture(params=[4, 5], ids=["plain", "encrypted"])
def smb_share(request, smb_real):
    """An empty folder in either share, with characters that a server may get wrong."""
    user, password, server, port, *_ = smb_real
    path = rf"{smb_real[request.param]}\Pýtæs†-[{time.time_ns()}{secrets.token_hex(2)}] 💩"
    smbclient.delete_session(server, port=port)
    smbclient.register_session(server, username=user, password=password, port=port)
    smbclient.mkdir(path)
    yield path
    # The test may have ended the session, so log on again.
    smbclient.register_session(server, username=user, password=password, port=port)
    rmtree(path)


@pytest.fixture
def smb_dfs_share():
    pytest.skip("needs a namespace of DFS")


def pytest_configure(config):
    config.seen = set()


def name_of(nodeid):
    """Returns a name of letters, digits and a few signs: rows are words."""
    file, _, test = nodeid.partition("::")
    text = f"{file.rpartition('/test_')[2].removesuffix('.py')}/{test.replace('::', '.')}"
    return "".join(c if c.isascii() and (c.isalnum() or c in "/._-") else "_" for c in text)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Prints a line for the first phase that fails or is skipped, or for the call."""
    outcome = yield
    report = outcome.get_result()
    seen = item.config.seen
    if item.nodeid in seen:
        return
    if report.passed and report.when != "teardown":
        # A pass is reported after the teardown, which must be able to remove the test's folder.
        return
    seen.add(item.nodeid)
    word = "ok" if report.passed else "skip" if report.skipped else "FAIL"
    reason = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = f"{report.when}: {crash.message if crash else report.longrepr}"
    print(f"\n{word} {name_of(item.nodeid)} {report.duration:.2f} {' '.join(reason.split())[:250]}", flush=True)
