"""Prepares the run before it enters its namespace: builds programs, fetches clients.

Everything is kept under target/interop; a changed version here is fetched anew.
"""

import concurrent.futures
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .model import OUT, ROOT

PYTHON_CLIENTS = ["smbprotocol==1.17.0", "impacket==0.13.1"]
GO_SMB2 = "github.com/cloudsoda/go-smb2@v0.0.0-20260918041005-0c5d69b69701"
FSX = "0.3.2"
# Programs with another name than their package.
OTHER_NAMES = {"frevo-durability": "frevo-cluster-load"}
TOOLS, VENV, GO_SUITE = OUT / "tools/bin", OUT / "venv", OUT / "go-smb2"
# Packages for logons by GSS-API. gssapi and krb5 are compiled with libkrb5-dev.
GSSAPI, GSSAPI_CLIENTS = OUT / "gssapi", ["smbprotocol==1.17.0", "gssapi==1.12.0", "krb5==0.10.0"]
# The Ansible that runs the role of contrib/ansible.
ANSIBLE, ANSIBLE_PACKAGES = OUT / "ansible", ["ansible-core==2.19.14"]
# Only pike needs pycryptodome, so it has a virtual environment of its own.
PIKE, PIKE_TESTS = (
    OUT / "pike",
    ["pike-smb2==0.4.6", "attrs==25.3.0", "future==1.0.0", "pycryptodome==3.23.0", "six==1.17.0"],
)


def stamped(directory, text):
    """Returns True if `directory` was prepared for exactly `text`."""
    stamp = directory / ".frevo-stamp"
    return stamp.exists() and stamp.read_text() == text


def stamp(directory, text):
    (directory / ".frevo-stamp").write_text(text)


def call(*args, **more):
    """Runs a preparing command; its output only matters if it fails."""
    print("prepare: " + " ".join(Path(a).name if i == 0 else str(a) for i, a in enumerate(args)), flush=True)
    done = subprocess.run(
        [str(a) for a in args],
        stdin=subprocess.DEVNULL,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **more},
    )
    if done.returncode:
        sys.stdout.write(done.stdout[-6000:])
        raise SystemExit(f"prepare: {args[0]} failed with {done.returncode}")
    return done.stdout


def target_directory():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def cargo_build(profile, *packages, features=()):
    """Builds packages of the workspace; returns the directory of the programs."""
    flags = [f for p in packages for f in ("-p", p)] + [f for f in features for f in ("--features", f)]
    call("cargo", "build", "--locked", "--profile", "dev" if profile == "debug" else profile, *flags, cwd=ROOT)
    return target_directory() / ("debug" if profile in ("dev", "debug") else profile)


def cargo_example(package, name):
    """Builds an example with the dev profile; returns the program."""
    call("cargo", "build", "--locked", "-p", package, "--example", name, cwd=ROOT)
    return target_directory() / "debug/examples" / name


def copy_program(source):
    """Copies a program to the tools if it changed: a build during the run must not pull it away."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    # A second run at the same time may copy the same program: the name contains the process number,
    # and the replacement is atomic.
    fresh = TOOLS / f"{source.name}.new{os.getpid()}"
    shutil.copy2(source, fresh)
    os.replace(fresh, TOOLS / source.name)
    return TOOLS / source.name


def fsx():
    if not stamped(TOOLS, FSX):
        call(
            "cargo",
            "install",
            "--root",
            TOOLS.parent,
            "fsx",
            "--version",
            FSX,
            "--locked",
            "--target-dir",
            OUT / "build",
        )
        shutil.rmtree(OUT / "build", ignore_errors=True)
        stamp(TOOLS, FSX)


def python_clients(venv=VENV, packages=PYTHON_CLIENTS):
    """Makes a virtual environment with exactly these packages."""
    wanted = " ".join(packages)
    if not stamped(venv, wanted):
        shutil.rmtree(venv, ignore_errors=True)
        call(sys.executable, "-m", "venv", venv)
        call(venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages)
        stamp(venv, wanted)


def go_suite():
    """Builds the test program of go-smb2's own suite; prints a note if Go is missing."""
    if stamped(GO_SUITE, GO_SMB2):
        return
    go = shutil.which("go")
    if not go:
        print("prepare: no go: its client's own suite will be skipped", flush=True)
        return
    source = Path(
        json.loads(
            subprocess.run(
                [go, "mod", "download", "-json", GO_SMB2], cwd="/", check=True, stdout=subprocess.PIPE
            ).stdout
        )["Dir"]
    )
    build = OUT / "go-smb2-source"
    shutil.rmtree(build, ignore_errors=True)
    shutil.copytree(source, build)
    subprocess.run(["chmod", "-R", "u+w", build], check=True)
    GO_SUITE.mkdir(parents=True, exist_ok=True)
    call(go, "test", "-c", "-o", GO_SUITE / "suite", ".", cwd=build)
    shutil.rmtree(build)
    stamp(GO_SUITE, GO_SMB2)


def first_parts(groups):
    """Returns the first parts of the groups' names."""
    return {g.name.split("/")[0] for g in groups}


def fetch(groups):
    """Fetches, and builds, what others have made and these groups use: all at once, since it comes from the network."""
    names = first_parts(groups)
    fetches = []
    uses_fsx = {"client/mount", "cluster/programs", "cluster/upgrade", "shadow-copies/under-load", "shadow-copies/lvm"}
    if names & {"cifs", "rdma"} or any(g.name in uses_fsx for g in groups):
        fetches.append(fsx)
    python = {"attacks", "clients", "crossing", "dfs", "differential", "disks", "guests", "import", "kerberos", "rpc"}
    of_cluster = {"cluster/error-contexts", "cluster/witness-cifs", "cluster/witness-told"}
    if names & python or any(g.name in of_cluster for g in groups):
        fetches.append(python_clients)
    if any(g.name == "kerberos/clients" for g in groups):
        fetches.append(functools.partial(python_clients, GSSAPI, GSSAPI_CLIENTS))
    if "automation" in names:
        fetches.append(functools.partial(python_clients, ANSIBLE, ANSIBLE_PACKAGES))
    if "pike" in names:
        fetches.append(functools.partial(python_clients, PIKE, PIKE_TESTS))
    if any(g.name == "clients/go-smb2" for g in groups):
        fetches.append(go_suite)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(fetch) for fetch in fetches]:
            done.result()


def next_version(built):
    """Builds the program that stands for the next version, in a folder of its own, or takes a built one."""
    if built:
        source = built / "frevo-next"
    else:
        folder = OUT / "next"
        flags = ["-p", "frevo", "--features", "test-hooks", "--target-dir", folder]
        call("cargo", "build", "--locked", "--profile", "dev", *flags, cwd=ROOT)
        source = folder / "frevo-next"
        shutil.copy2(folder / "debug/frevo", source)
    copy_program(source)


def build(args, groups):
    """Builds the programs of Frevo that the groups use, or takes built ones; returns the path of the server."""
    names = first_parts(groups)
    built = Path(args.built).resolve() if args.built else None
    packages = []
    if names & {"cifs", "rdma"}:
        packages.append("frevo-guest-checks")
    if names & {"cluster", "cluster-ceph"}:
        packages.append("frevo-durability")
    if any(g.name.startswith("clients/smb2-rs") for g in groups):
        packages.append("frevo-peer-smb2")
    if any(g.name == "cluster/upgrade" for g in groups):
        next_version(built)
    examples = {}
    if "client" in names:
        examples["frevo-client"] = ["append_locked", "break_trial", "exactly_once"]
    if "embedded" in names:
        examples["frevo-server"] = ["embed", "readonly_archive"]
    # The speed of the checks' own programs does not matter: the dev profile is enough.
    for package in packages:
        folder = built or cargo_build("dev", package)
        copy_program(folder / OTHER_NAMES.get(package, package))
    for package, programs in examples.items():
        for name in programs:
            copy_program(built / "examples" / name if built else cargo_example(package, name))
    has_client = names & {"client", "client-ksmbd", "dfs", "disks", "programs", "rdma"}
    has_client = has_client or any(g.name == "kerberos/client" for g in groups)
    if args.server != "frevo" and not has_client:
        return None
    if args.frevo:
        program = str(Path(args.frevo).resolve())
    elif built:
        program = str(copy_program(built / "frevo"))
    else:
        # Only a build with this feature has the control codes that smbtorture uses.
        features = ["test-hooks"] if any(g.profile == "torture" for g in groups) else []
        features += ["rdma"] if "rdma" in names else []
        program = str(copy_program(cargo_build(args.profile, "frevo", features=features) / "frevo"))
    # Groups of Frevo's client use this program with any server.
    os.environ["FREVO_CLIENT"] = program
    return program if args.server == "frevo" else None
