"""Sixteen option sets as smb.conf files of servers in use have them, and the stock files of three distributions.

Of a file only those options are here that decide on rights, on owners and on permission bits; names and paths
are those of this test. The users: ann owns the files; bob and dora are in
the group staff, as ann is; carl is in the group crew; eve is in no group.
"""

# Name of the file: (its options, options of the folders). The folders belong to ann and staff.
SETS = {
    # A folder for private files, as in the homes of a small Debian server.
    "private": ("valid users = ann, @staff\nread only = no\ncreate mask = 0700\ndirectory mask = 0700", {}),
    # A public folder that staff alone may write, with the old spellings.
    "public": ("public = no\nwritable = no\nwrite list = @staff\nprintable = no", {}),
    # A department whose files belong to its group.
    "department": (
        "valid users = @staff\nread only = no\nforce group = staff\ncreate mask = 0660\ndirectory mask = 0770\n"
        "force create mode = 0660\nforce directory mode = 2770",
        {"mode": 0o2770},
    ),
    # A folder with set-group-ID, and masks that leave the group its rights.
    "setgid": ("read only = no\ncreate mask = 0664\ndirectory mask = 2775", {"mode": 0o2775}),
    # Films and music: all read, one writes.
    "media": ("read only = yes\nwrite list = dora\nread list = carl", {"mode": 0o777}),
    # One user for all, as on appliances.
    "appliance": ("valid users = @staff @crew\nforce user = ann\nread only = no\ncreate mask = 0666", {}),
    # A project whose folders decide on the bits.
    "project": ("read only = no\ninherit permissions = yes", {"mode": 0o2770}),
    # The same, and the folder's owner keeps all files.
    "archive": ("read only = no\ninherit permissions = yes\ninherit owner = yes", {"mode": 0o2777}),
    # Default lists of POSIX that are to be inherited.
    "lists": ("read only = no\ninherit acls = yes", {"mode": 0o2775, "default": "u::rwx,g::r-x,g:crew:rwx,o::---"}),
    # Whoever may write a file may change its permissions.
    "filemode": ("read only = no\ndos filemode = yes\ncreate mask = 0664\ndirectory mask = 0775", {}),
    # Attributes as bits of the mode, from the time before extended attributes.
    "old": (
        "read only = no\nstore dos attributes = no\nmap archive = yes\nmap hidden = yes\nmap system = yes\n"
        "map readonly = yes\ncreate mask = 0775",
        {"mode": 0o777},
    ),
    # Lists of Windows, as guides for directories have them.
    "windows": (
        "read only = no\nvfs objects = acl_xattr\nmap acl inherit = yes\nstore dos attributes = yes",
        {"mode": 0o2775},
    ),
    # Files that a user cannot read are not shown.
    "hidden": ("read only = no\nhide unreadable = yes\nveto files = /*.exe/", {"mode": 0o777}),
    # A recycle bin.
    "recycle": (
        "read only = no\nvfs objects = recycle\nrecycle:repository = .recycle/%U\nrecycle:keeptree = yes\n"
        "recycle:versions = yes\ncreate mask = 0664",
        {"mode": 0o777},
    ),
    # Lists that name whom they keep out.
    "excluded": ("read only = no\ninvalid users = eve\nread list = carl\ncreate mask = 0644", {"mode": 0o777}),
    # Clients of Macs.
    "macs": (
        "read only = no\nvfs objects = catia fruit streams_xattr\nfruit:metadata = stream\n"
        "fruit:resource = stream\nforce create mode = 0664\nforce directory mode = 0775",
        {"mode": 0o777},
    ),
}

GLOBAL = "workgroup = WORKGROUP\nserver role = standalone server\nmap to guest = never\n"

# The options of the files that distributions install, but for those of printers and of the network.
STOCK = {
    "debian": (
        "workgroup = WORKGROUP\nlog file = /var/log/samba/log.%m\nmax log size = 1000\nlogging = file\n"
        "panic action = /usr/share/samba/panic-action %d\nserver role = standalone server\n"
        "obey pam restrictions = yes\nunix password sync = yes\n"
        "passwd program = /usr/bin/passwd %u\n"
        "passwd chat = *Enter\\snew\\s*\\spassword:* %n\\n *Retype\\snew\\s*\\spassword:* %n\\n "
        "*password\\supdated\\ssuccessfully* .\n"
        "pam password change = yes\nmap to guest = bad user\nusershare allow guests = yes\n"
        "[homes]\ncomment = Home Directories\nbrowseable = no\nread only = yes\ncreate mask = 0700\n"
        "directory mask = 0700\nvalid users = %S\n"
        "[printers]\ncomment = All Printers\nbrowseable = no\npath = /var/spool/samba\nprintable = yes\n"
        "guest ok = no\nread only = yes\ncreate mask = 0700\n"
        "[print$]\ncomment = Printer Drivers\npath = /var/lib/samba/printers\nbrowseable = yes\n"
        "read only = yes\nguest ok = no\n"
    ),
    "rhel": (
        "workgroup = SAMBA\nsecurity = user\npassdb backend = tdbsam\nprinting = cups\nprintcap name = cups\n"
        "load printers = yes\ncups options = raw\n"
        "[homes]\ncomment = Home Directories\nvalid users = %S, %D%w%S\nbrowseable = No\nread only = No\n"
        "inherit acls = Yes\n"
        "[printers]\ncomment = All Printers\npath = /var/tmp\nprintable = Yes\ncreate mask = 0600\n"
        "browseable = No\n"
        "[print$]\ncomment = Printer Drivers\npath = /var/lib/samba/drivers\nwrite list = @printadmin root\n"
        "force group = @printadmin\ncreate mask = 0664\ndirectory mask = 0775\n"
    ),
    "suse": (
        "workgroup = WORKGROUP\npassdb backend = tdbsam\nprinting = cups\nprintcap name = cups\n"
        "printcap cache time = 750\ncups options = raw\nmap to guest = Bad User\n"
        "logon path = \\\\%L\\profiles\\.msprofile\nlogon home = \\\\%L\\%U\\.9xprofile\nlogon drive = P:\n"
        "usershare allow guests = Yes\n"
        "[homes]\ncomment = Home Directories\nvalid users = %S, %D%w%S\nbrowseable = No\nread only = No\n"
        "inherit acls = Yes\n"
        "[profiles]\ncomment = Network Profiles Service\npath = %H\nread only = No\nstore dos attributes = Yes\n"
        "create mask = 0600\ndirectory mask = 0700\n"
        "[users]\ncomment = All users\npath = /home\nread only = No\ninherit acls = Yes\n"
        "veto files = /aquota.user/groups/shares/\n"
        "[groups]\ncomment = All groups\npath = /home/groups\nread only = No\ninherit acls = Yes\n"
        "[printers]\ncomment = All Printers\npath = /var/tmp\nprintable = Yes\ncreate mask = 0600\n"
        "browseable = No\n"
        "[print$]\ncomment = Printer Drivers\npath = /var/lib/samba/drivers\nwrite list = @ntadmin root\n"
        "force group = ntadmin\ncreate mask = 0664\ndirectory mask = 0775\n"
    ),
}
# For each of them the shares that are tried: name, and the folder that is filled.
STOCK_SHARES = {
    "debian": {"ann": "/home/ann"},
    "rhel": {"ann": "/home/ann"},
    "suse": {"ann": "/home/ann", "profiles": "/home/{user}", "users": "/home", "groups": "/home/groups"},
}

# Differences from smbd that are meant: (set, user, action, words of the difference, reason); the first four are
# patterns. Frevo is stricter there; a right that smbd does not give is a failure in any case.
STRICTER = [
    (
        "*",
        "*",
        "create",
        "('0o6??', *), smbd ('0o7??', *)",
        "smbd gives the owner the right to execute for ARCHIVE (map archive), also where attributes are stored",
    ),
    (
        "windows",
        "*",
        "rights",
        "refused 0xc0000022, *",
        "acl_xattr of smbd switches dos filemode on for files without a stored list; here the owner stores the list",
    ),
    (
        "windows",
        "*",
        "create",
        "('0o644', *), smbd ('0o775', *)",
        "acl_xattr switches the masks off; file_mode goes on to count here",
    ),
    (
        "windows",
        "*",
        "mkdir",
        "('0o2755', *), smbd ('0o2775', *)",
        "acl_xattr switches the masks off; directory_mode goes on to count here",
    ),
]
