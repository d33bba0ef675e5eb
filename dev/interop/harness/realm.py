"""A realm of MIT's KDC, with a server in it that accepts its tickets."""

import contextlib
import subprocess

from .model import HERE, Failure
from .servers import newer_samba

# This address differs from that of the group's own server.
ADDRESS = "198.18.3.1"
HOST, REALM = "files.frevo.test", "FREVO.TEST"


def with_realm(server, *section, sections=(), directory=None):
    """Returns the command that runs another one beside a server like `server` in a realm.

    `section` are lines of Frevo's `[kerberos]`, besides the keytab, and `sections` lines before it. A realm is no
    domain: smbd wants tickets without a PAC. The realm's files are in `directory`.
    """
    if server.kind == "frevo":
        keytab = r"keytab = \"$SMB_KEYTAB\""
        lines = [*sections, "[kerberos]", keytab, r"realms = [\"$SMB_REALM\"]", r"pac = \"checked\"", *section]
        options = "".join(f' -c "{line}"' for line in lines)
        run = f'"{HERE}/with-frevo" -a {ADDRESS} -b "{server.program}" -x --encryption -x offered{options}'
        no_pac = []
    else:
        keytab = "dedicated keytab file = FILE:$SMB_KEYTAB"
        lines = ["realm = $SMB_REALM", "kerberos method = dedicated keytab", keytab]
        options = "".join(f' -g "{line}"' for line in lines)
        newer = f' -R "{newer_samba(server.samba)}"' if server.samba else ""
        run = f'"{HERE}/with-samba" -a {ADDRESS}{newer}{options} -s "force user = root"'
        no_pac = ["-P"]
    place = ["-d", directory] if directory else []
    realm = [HERE / "with-realm", *no_pac, *place, "-a", ADDRESS, "-s", ADDRESS]
    return [*realm, "--", "bash", "-c", f'exec {run} -- "$@"', "bash"]


@contextlib.contextmanager
def inside(server):
    """Yields the command that runs another one inside a realm, which lasts as long as the block."""
    child = subprocess.Popen(
        [*map(str, with_realm(server)), "sh", "-c", "echo $$; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = child.stdout.readline().strip()
    if not pid:
        raise Failure(f"no realm: {child.stderr.read().strip()}")
    try:
        yield ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--"]
    finally:
        child.stdin.close()
        child.wait(timeout=30)
