"""A directory of OpenLDAP for the tests, with Samba's schema, all of it in one folder."""

import contextlib
import socket
import subprocess
import time
from pathlib import Path

SCHEMAS = Path("/etc/ldap/schema")
SAMBA_SCHEMA = Path("/usr/share/doc/samba/examples/LDAP/samba.schema")
BASE, ASKS, ADMIN = "dc=frevo,dc=test", "cn=frevo,dc=frevo,dc=test", "cn=admin,dc=frevo,dc=test"
# The passwords of the entry that asks and of the administrator, and those of users.
ASKING, MANAGING = "asks for accounts", "manages them"
PASSWORD, OTHER = "Passw0rd", "Other1pw"
TLS_PORT, PORT = 6360, 3890
# Seconds for slapd to start.
PATIENCE = 15

PEOPLE = {
    "ann": ["sambaAcctFlags: [U          ]"],
    "bob": ["sambaAcctFlags: [UD         ]"],
    "carl": ["sambaAcctFlags: [U          ]", "sambaKickoffTime: 1700000000"],
    "eve": ["sambaAcctFlags: [U          ]"],
    # An account of the file has this name, too.
    "smbuser": ["sambaAcctFlags: [U          ]"],
}


def nt_hash(password):
    """Returns the NT hash of a password, in hexadecimal digits."""
    command = ["openssl", "dgst", "-provider", "legacy", "-provider", "default", "-md4", "-r"]
    done = subprocess.run(command, input=password.encode("utf-16-le"), check=True, stdout=subprocess.PIPE)
    return done.stdout.split()[0].decode().upper()


def secret(folder):
    """Writes the password of the entry that asks, and certificates; the server reads them when it starts."""
    for name, text in {"ldap.password": ASKING, "wrong.password": "something else"}.items():
        file = folder / name
        file.touch(mode=0o600)
        file.write_text(f"{text}\n")
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    request += ["-days", "2", "-subj", "/CN=slapd", "-addext", "basicConstraints=critical,CA:FALSE"]
    for name in ("ldap", "other"):
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
        subprocess.run(
            [*request, "-addext", "subjectAltName=IP:198.18.0.1,IP:127.0.0.1", *files],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def entries():
    """Returns the entries of the directory as LDIF."""
    text = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: frevo\no: frevo\n\n"
    for unit in ("people", "groups"):
        text += f"dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}\n\n"
    text += (
        f"dn: {ASKS}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: frevo\n"
        f"userPassword: {ASKING}\n\n"
    )
    for number, (name, more) in enumerate(PEOPLE.items()):
        password = OTHER if name == "smbuser" else PASSWORD
        text += (
            f"dn: uid={name},ou=people,{BASE}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\n"
            f"objectClass: sambaSamAccount\nuid: {name}\ncn: {name}\nsn: {name}\nuidNumber: {5000 + number}\n"
            f"gidNumber: 5100\nhomeDirectory: /home/{name}\nsambaSID: S-1-5-21-1-2-3-{3000 + 2 * number}\n"
            f"sambaNTPassword: {nt_hash(password)}\n" + "".join(f"{line}\n" for line in more) + "\n"
        )
    groups = {
        "staff": ["objectClass: posixGroup", "gidNumber: 5200", "memberUid: ann"],
        "first": ["objectClass: posixGroup", "gidNumber: 5100"],
        "west": ["objectClass: groupOfNames", f"member: uid=ann,ou=people,{BASE}"],
        "Administrators": ["objectClass: posixGroup", "gidNumber: 5300", "memberUid: eve"],
    }
    for name, lines in groups.items():
        text += f"dn: cn={name},ou=groups,{BASE}\n" + "\n".join([*lines, f"cn: {name}"]) + "\n\n"
    return text


class Slapd:
    """A slapd that can be stopped and started again."""

    def __init__(self, folder, address, log):
        self.folder, self.address, self.log, self.child = folder / "slapd", address, log, None
        (self.folder / "data").mkdir(parents=True)
        names = ("core", "cosine", "nis", "inetorgperson")
        includes = "".join(f"include {SCHEMAS}/{name}.schema\n" for name in names)
        own = f'by dn.exact="{ASKS}"'
        self.settings = self.folder / "slapd.conf"
        self.settings.write_text(
            f"{includes}include {SAMBA_SCHEMA}\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n"
            f"pidfile {self.folder}/slapd.pid\nTLSCertificateFile {folder}/ldap.pem\n"
            f"TLSCertificateKeyFile {folder}/ldap.key\nTLSCACertificateFile {folder}/ldap.pem\n"
            f'database mdb\nsuffix "{BASE}"\nrootdn "{ADMIN}"\nrootpw "{MANAGING}"\ndirectory {self.folder}/data\n'
            f"access to attrs=userPassword by anonymous auth by * none\n"
            f"access to attrs=sambaNTPassword {own} read by * none\naccess to * {own} read by * none\n"
        )
        filled = ["slapadd", "-q", "-f", self.settings]
        subprocess.run(filled, input=entries(), text=True, check=True, stdout=log, stderr=log)

    def start(self, *urls):
        """Starts slapd for the places of these URLs."""
        places = urls or (f"ldaps://{self.address}:{TLS_PORT}", f"ldap://{self.address}:{PORT}")
        command = ["slapd", "-d", "0", "-f", self.settings, "-h", " ".join(places)]
        self.child = subprocess.Popen([*map(str, command)], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        port = int(places[0].rsplit(":", 1)[1])
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.child.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((self.address, port), timeout=1):
                return
            time.sleep(0.05)
        raise RuntimeError("slapd does not start")

    def stop(self):
        """Ends slapd at once."""
        if self.child:
            self.child.kill()
            self.child.wait(10)
            self.child = None

    def modify(self, user, *lines):
        """Changes the entry of a user."""
        change = "\n".join([f"dn: uid={user},ou=people,{BASE}", "changetype: modify", *lines]) + "\n"
        command = ["ldapmodify", "-x", "-D", ADMIN, "-w", MANAGING, "-H", f"ldap://{self.address}:{PORT}"]
        subprocess.run(command, input=change, text=True, check=True, stdout=self.log, stderr=self.log)
