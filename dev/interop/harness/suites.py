"""Fetches clients with test suites of their own, in pinned versions, and builds what must be built.

Everything is kept under target/interop. A missing toolchain is a note here and a skipped row later.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from .model import HERE, OUT
from .prepare import call, python_clients, stamp, stamped

RCLONE_VERSION = "v1.76.0"
RCLONE = OUT / "rclone"
# The packages of rclone whose tests run against a server, by group name.
RCLONE_SUITES = {
    "backend-smb": "backend/smb",
    "operations": "fs/operations",
    "sync": "fs/sync",
    "vfs": "vfs",
    "bisync": "cmd/bisync",
}
# Only the backends and commands that the tests and the mount use (onedrive has its own hash).
# Building all of rclone takes many times as long.
BACKENDS = ("chunker", "crypt", "local", "memory", "onedrive", "smb")
COMMANDS = ("", "/copy", "/mount", "/obscure")

SMBPROTOCOL_VERSION = "1.17.0"
SMBPROTOCOL = OUT / "smbprotocol-suite"
SMBPROTOCOL_PACKAGES = [f"smbprotocol=={SMBPROTOCOL_VERSION}", "pytest==9.0.1", "pytest-mock==3.15.1"]

PYSMB_VERSION = "1.2.15"
PYSMB = OUT / "pysmb"

SMB_RS_VERSION = "0.12.1"
SMB_RS = OUT / "smb-rs"
# The statement in smb-rs that runs when its stream of a directory has no more names.
SMB_RS_WAKES = "this.notify_fetch_next.notify_waiters() //"

JAVA_SOURCES = HERE / "peers/java"
JAVA = OUT / "java"

NODE = OUT / "node"

LIBSMB2_VERSION = "6.2+dfsg-2+deb13u1"
LIBSMB2 = OUT / "libsmb2"
LIBSMB2_TAG, LIBSMB2_COMMIT = "libsmb2-6.2", "d67e213a5c4e7e4969fd81f0b95e4ca5831fbba1"
# All examples of libsmb2 except the server.
LIBSMB2_EXAMPLES = [
    f"smb2-{name}"
    for name in [
        "CMD-FIND",
        "cat-async",
        "cat-sync",
        "ftruncate-sync",
        "ls-async",
        "lsa-lookupsids",
        "lseek-sync",
        "put-async",
        "put-sync",
        "raw-fsstat-async",
        "raw-getsd-async",
        "raw-stat-async",
        "readlink",
        "rename-sync",
        "share-enum",
        "share-info",
        "stat-sync",
        "statvfs-sync",
        "truncate-sync",
    ]
]


def note(missing, what):
    print(f"prepare: no {missing}: {what} will be skipped", flush=True)


def imports(package, names):
    """Returns a Go file that imports these packages of rclone for their side effects."""
    lines = "".join(f'\t_ "github.com/rclone/rclone/{n}"\n' for n in names)
    return f"// Package {package} imports what the tests use.\npackage {package}\n\nimport (\n{lines})\n"


def rclone(suites):
    """Builds the test programs of these suites and, with "mount", the program itself."""
    go = shutil.which("go")
    if not go:
        note("go", "rclone")
        return
    wanted = f"{RCLONE_VERSION} {BACKENDS} {COMMANDS}"
    source = RCLONE / "source"
    if not stamped(RCLONE, wanted):
        shutil.rmtree(RCLONE, ignore_errors=True)
        module = f"github.com/rclone/rclone@{RCLONE_VERSION}"
        found = json.loads(call(go, "mod", "download", "-json", module, cwd="/"))["Dir"]
        shutil.copytree(found, source)
        subprocess.run(["chmod", "-R", "u+w", source], check=True)
        (source / "backend/all/all.go").write_text(imports("all", [f"backend/{b}" for b in BACKENDS]))
        (source / "cmd/all/all.go").write_text(imports("all", [f"cmd{c}" for c in COMMANDS]))
        stamp(RCLONE, wanted)
    for suite in suites:
        program = RCLONE / suite
        if not program.exists() and suite == "mount":
            call(go, "build", "-o", program, ".", cwd=source)
        elif not program.exists():
            call(go, "test", "-c", "-o", program, f"./{RCLONE_SUITES[suite]}", cwd=source)


def smbprotocol():
    """Unpacks the tests of smbprotocol's source package beside their fixtures."""
    python_clients(SMBPROTOCOL / "venv", SMBPROTOCOL_PACKAGES)
    tests = SMBPROTOCOL / "tests"
    if not tests.exists():
        fetched = SMBPROTOCOL / "fetched"
        pip = [SMBPROTOCOL / "venv/bin/pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        call(*pip, "-d", fetched, SMBPROTOCOL_PACKAGES[0])
        archive = next(fetched.glob("smbprotocol-*.tar.gz"))
        call("tar", "-xzf", archive, "-C", fetched)
        shutil.copytree(fetched / f"smbprotocol-{SMBPROTOCOL_VERSION}/tests", tests)
        shutil.rmtree(fetched)
    shutil.copyfile(HERE / "peers/smbprotocol_suite/conftest.py", tests / "conftest.py")


def smb_rs():
    """Builds the test programs of the crate smb."""
    wanted = f"{SMB_RS_VERSION} {SMB_RS_WAKES}"
    if stamped(SMB_RS, wanted):
        return
    shutil.rmtree(SMB_RS, ignore_errors=True)
    SMB_RS.mkdir(parents=True)
    # cargo fetches a package only as another crate's dependency: make such a crate.
    (SMB_RS / "src").mkdir()
    (SMB_RS / "src/lib.rs").touch()
    (SMB_RS / "Cargo.toml").write_text(
        f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\nsmb = "={SMB_RS_VERSION}"\n[workspace]\n'
    )
    found = json.loads(call("cargo", "metadata", "--format-version", "1", cwd=SMB_RS, stderr=subprocess.PIPE))
    manifest = next(p["manifest_path"] for p in found["packages"] if p["name"] == "smb")
    source = SMB_RS / "source"
    shutil.copytree(Path(manifest).parent, source)
    # The published package lacks a feature of tokio that its tests use.
    text = (source / "Cargo.toml").read_text().replace('    "macros",\n]', '    "macros",\n    "rt-multi-thread",\n]')
    (source / "Cargo.toml").write_text(text + "\n[workspace]\n")
    # A bug of smb-rs: its directory stream waits for ever if the test takes the last name before
    # the stream waits for more, since notify_waiters wakes only tasks that already wait. No server
    # can prevent that.
    listing = source / "src/resource/directory.rs"
    text = listing.read_text()
    if text.count(SMB_RS_WAKES) != 1:
        raise SystemExit(f"prepare: {listing} is not that of smb {SMB_RS_VERSION}")
    listing.write_text(text.replace(SMB_RS_WAKES, SMB_RS_WAKES.replace("notify_waiters", "notify_one")))
    target = SMB_RS / "target"
    # Use the crate's own lock file, so that each build has the same versions.
    arguments = ["test", "--no-run", "--tests", "--locked", "--message-format=json", "--target-dir", target]
    printed = call("cargo", *arguments, cwd=source, stderr=subprocess.PIPE)
    for line in printed.splitlines():
        built = json.loads(line) if line.startswith("{") else {}
        if built.get("executable") and built["target"]["kind"] == ["test"]:
            shutil.copy2(built["executable"], SMB_RS / ("suite-" + built["target"]["name"]))
    shutil.rmtree(target)
    stamp(SMB_RS, wanted)


def java():
    """Fetches the Java clients by Maven and compiles the programs that use them."""
    if not shutil.which("mvn") or not shutil.which("javac"):
        note("mvn or javac", "smbj and jcifs-ng")
        return
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    pom = JAVA_SOURCES / "pom.xml"
    wanted = pom.read_text()
    if not stamped(JAVA, wanted):
        shutil.rmtree(JAVA, ignore_errors=True)
        JAVA.mkdir(parents=True)
        call("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={JAVA / 'jars'}")
        stamp(JAVA, wanted)
    call("javac", "-cp", f"{JAVA}/jars/*", "-d", JAVA / "classes", *sources)


def node():
    """Fetches the clients of npm, without scripts of theirs."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        note("npm or node", "the clients in JavaScript")
        return
    package = HERE / "peers/node/package.json"
    wanted = package.read_text()
    if stamped(NODE, wanted):
        return
    shutil.rmtree(NODE, ignore_errors=True)
    NODE.mkdir(parents=True)
    shutil.copyfile(package, NODE / "package.json")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    if subprocess.run([npm, "install", "--silent", *flags], cwd=NODE, check=False).returncode:
        note("answer of npm's registry", "the clients in JavaScript")
        return
    stamp(NODE, wanted)


def libsmb2_source():
    """Fetches the source of libsmb2, whose examples no package has; LIBSMB2_GIT names a copy of its repository."""
    source = LIBSMB2 / "source"
    if not (source / "examples").exists():
        origin = os.environ.get("LIBSMB2_GIT", "https://github.com/sahlberg/libsmb2")
        command = ["git", "-c", "advice.detachedHead=false", "clone", "-q", "--depth=1", f"--branch={LIBSMB2_TAG}"]
        if subprocess.run([*command, origin, source], check=False).returncode:
            note(origin, "libsmb2's examples")
        elif call("git", "-C", source, "rev-parse", "HEAD").strip() != LIBSMB2_COMMIT:
            raise SystemExit(f"prepare: {LIBSMB2_TAG} of {origin} is not {LIBSMB2_COMMIT}")
    return source


def libsmb2():
    """Unpacks Debian 13's libsmb2 and compiles the program that uses it; both run with Debian 13's C library."""
    root = Path(call(HERE / "newer-samba", "4.22", stderr=subprocess.DEVNULL).strip())
    if not stamped(LIBSMB2, LIBSMB2_VERSION):
        shutil.rmtree(LIBSMB2, ignore_errors=True)
        LIBSMB2.mkdir(parents=True)
        fetched = root / "tmp/libsmb2"
        fetched.mkdir(exist_ok=True)
        packages = [f"{p}={LIBSMB2_VERSION}" for p in ("libsmb2-6", "libsmb2-dev")]
        call(
            "chroot",
            root,
            "sh",
            "-c",
            f"apt-get -qq update; cd /tmp/libsmb2 && apt-get -qq download {' '.join(packages)}",
        )
        for package in fetched.glob("*.deb"):
            call("dpkg-deb", "-x", package, LIBSMB2)
        shutil.rmtree(fetched)
        stamp(LIBSMB2, LIBSMB2_VERSION)
    include, libraries = LIBSMB2 / "usr/include", next(LIBSMB2.glob("usr/lib/*/libsmb2.so")).parent
    # libsmb2 is linked against a newer C library than the compiler's.
    flags = ["-O1", "-D_GNU_SOURCE", f"-I{include}", f"-L{libraries}", "-Wl,--allow-shlib-undefined"]
    sources = {"peer": HERE / "peers/libsmb2_peer.c"}
    examples = libsmb2_source() / "examples"
    sources |= {name: examples / f"{name}.c" for name in LIBSMB2_EXAMPLES if examples.exists()}
    for name, source in sources.items():
        # Definitions that the configure script of libsmb2 would make.
        defined = ["-DHAVE_POLL_H", "-D_U_=__attribute__((unused))", f"-I{include}/smb2", "-w"]
        call("cc", *flags, *defined, "-o", LIBSMB2 / name, source, "-lsmb2")
    theirs = root / libraries.relative_to(LIBSMB2)
    loader = next(root.glob("usr/lib64/ld-linux-*.so.2"))
    (LIBSMB2 / "run").write_text(f'#!/bin/sh\nexec {loader} --library-path {libraries}:{theirs} {LIBSMB2}/"$@"\n')
    (LIBSMB2 / "run").chmod(0o755)


def wanted_by(groups):
    """Prepares what these groups use."""
    names = {g.name for g in groups}
    suites = [s for s in RCLONE_SUITES if f"rclone/{s}" in names]
    if "programs/rclone-mount" in names:
        suites.append("mount")
    if suites:
        rclone(suites)
    if "suites/smbprotocol" in names:
        smbprotocol()
    if "suites/smb-rs" in names:
        smb_rs()
    if any(n.startswith("java/") for n in names) or names & {"dfs/failover", "dfs/walk", "kerberos/clients"}:
        java()
    if any(n.startswith("npm/") for n in names):
        node()
    if any(n.startswith("clients/libsmb2") for n in names):
        libsmb2()
    if names & {"clients/pysmb", "clients/demanded"}:
        python_clients(PYSMB, [f"pysmb=={PYSMB_VERSION}"])
