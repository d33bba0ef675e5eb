"""Configuration tools: the Ansible role of contrib/ansible, against a server of this machine."""

import json
import re
import subprocess
from pathlib import Path

from ..model import ROOT, Failure, group
from ..prepare import ANSIBLE

PORT = 4456
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "roles": ["frevo"],
    }
]


class Managed:
    """A server whose files are below one folder, and the runs of the role on it."""

    def __init__(self, ctx):
        self.ctx, self.root = ctx, ctx.server.directory / "managed"
        for folder in ("conf.d", "srv/first", "state"):
            (self.root / folder).mkdir(parents=True)
        self.root.chmod(0o755)
        self.config = self.root / "frevo.toml"
        self.config.write_text(
            f'[server]\nname = "BOX"\nlisten = ["127.0.0.1:{PORT}"]\nstate_dir = "{self.root}/state"\n'
            f'encryption = "offered"\nconfine_to = ["{self.root}/srv"]\n'
            # With a share from the start the server keeps the right that lists of later ones take.
            f'[[share]]\nname = "first"\npath = "{self.root}/srv/first"\n'
        )
        self.play = self.root / "play.yml"
        self.play.write_text(json.dumps(PLAY))
        self.users = [
            {"name": "ann", "password": "Passw0rd", "groups": ["staff"]},
            {"name": "bob", "password": "Passw0rd", "state": "disabled"},
            {"name": "carl", "state": "absent"},
        ]
        self.shares = [
            {"name": "staff", "path": f"{self.root}/srv/staff", "mode": "0755", "settings": ["allow=ann,bob"]},
            {
                "name": "scans",
                "path": f"{self.root}/srv/scans",
                "mode": "0755",
                # The first key needs the second one.
                "settings": ["map_readonly=true", "dos_attributes=false", "nt_acls=posix", "allow=@staff"],
            },
            {"name": "old", "state": "absent"},
        ]

    def run(self, *more):
        """Runs the role; returns how many tasks have changed something."""
        variables = {
            "frevo_program": self.ctx.server.program,
            "frevo_config": str(self.config),
            "frevo_apply": "reload",
            "frevo_users": self.users,
            "frevo_shares": self.shares,
        }
        playbook = [ANSIBLE / "bin/ansible-playbook", "-i", "localhost,", "-e", json.dumps(variables), *more]
        env = {
            "ANSIBLE_ROLES_PATH": str(ROOT / "contrib/ansible/roles"),
            "ANSIBLE_HOME": str(self.root / "ansible"),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_PYTHON_INTERPRETER": str(ANSIBLE / "bin/python"),
            "ANSIBLE_NOCOLOR": "1",
        }
        status, output = self.ctx.command(*playbook, self.play, timeout=120, env=env)
        recap = re.search(r"changed=(\d+)\s+unreachable=0\s+failed=0", output)
        if status or not recap:
            raise Failure(f"status {status}: {output.strip()[-300:]}")
        return int(recap[1])

    def smbclient(self, *commands, share="staff", user="ann", password="Passw0rd"):
        client = ["smbclient", f"//127.0.0.1/{share}", "-p", PORT, "-U", f"{user}%{password}", "-m", "SMB3_11"]
        return self.ctx.command(*client, "-c", "; ".join(commands))

    def state(self):
        """Returns times and numbers of the files that the commands write."""
        files = (self.config, self.root / "state/users")
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns) for stat in (f.stat() for f in files if f.exists())]


@group("automation/ansible", full_only=True, beside=60, seconds=90)
def ansible(ctx):
    """The role twice: the first run changes, the second changes nothing, and the shares work."""
    if ctx.server.kind != "frevo":
        return
    managed = Managed(ctx)
    with open(managed.root / "log", "w") as log:
        serve = [ctx.server.program, "serve", "--config", managed.config]
        server = subprocess.Popen(serve, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            while server.stdout.readline() not in ("ready\n", ""):
                pass
            checks(ctx, managed)
        finally:
            server.terminate()
            server.wait(timeout=30)
            ctx.log.write((managed.root / "log").read_text())


def checks(ctx, managed):
    local = ctx.work / "local"
    local.write_text("a text")

    def changes(expected, *more):
        found = managed.run(*more)
        if (found > 0) != expected:
            raise Failure(f"{found} tasks changed something")

    with ctx.check("check-mode-writes-nothing"):
        before = managed.state()
        changes(True, "--check")
        if managed.state() != before or (managed.root / "srv/staff").exists():
            raise Failure("something was written")
    with ctx.check("first-run-changes"):
        changes(True)
    with ctx.check("second-run-changes-nothing"):
        before = managed.state()
        changes(False)
        if managed.state() != before:
            raise Failure("a file was written")
    with ctx.check("share-works"):
        for share in ("staff", "scans"):
            status, output = managed.smbclient(f'put "{local}" new', "get new -", "del new", share=share)
            if status or "a text" not in output:
                raise Failure(output.strip()[-200:])
    with ctx.check("disabled-account-is-refused"):
        _, output = managed.smbclient("ls", user="bob")
        if "NT_STATUS_ACCOUNT_DISABLED" not in output and "NT_STATUS_LOGON_FAILURE" not in output:
            raise Failure(output.strip()[-200:])
    with ctx.check("new-password"):
        managed.users[0]["password"] = "another one"
        managed.shares[1] = {"name": "scans", "state": "absent"}
        changes(True)
        if managed.smbclient("ls")[0] == 0 or managed.smbclient("ls", password="another one")[0]:
            raise Failure("the old password, or not the new one, is in force")
    with ctx.check("absent-share-is-gone"):
        status, _ = managed.smbclient("ls", share="scans", password="another one")
        if status == 0 or not (managed.root / "srv/scans").is_dir():
            raise Failure("the share is there, or its folder is gone")
    with ctx.check("password-is-in-no-output"):
        ctx.log.flush()
        lines = Path(ctx.log.name).read_text().splitlines()
        told = [line for line in lines if "Passw0rd" in line and "-e " not in line and "smbclient" not in line]
        if told:
            raise Failure(told[0][:200])
