//! The options of smb.conf, and what becomes of each.
//!
//! Samba 4.17 to 4.24 know these names. A test walks all of 4.22.

use super::words::{squeezed, truth};

/// The fate of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Code of this module converts it.
    Converted,
    /// Nobody notices its absence.
    Harmless,
    /// Without it a function is missing; nobody has more rights.
    LeftOut,
    /// Without it users can do less.
    Stricter,
    /// Without it users could do more: the share becomes a comment, or nothing is converted.
    Opens,
}

/// Options of one effect.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) effect: Effect,
    /// Values without the effect, in lower case, with `yes` and `no` for all words of these.
    unless: &'static [&'static str],
    pub(super) why: &'static str,
    names: &'static [&'static str],
}

impl Row {
    /// The values without the effect, for tests.
    #[cfg(test)]
    pub(super) const fn harmless_values(&self) -> &'static [&'static str] {
        self.unless
    }

    /// True for a value that has the effect.
    pub(super) fn applies_to(&self, value: &str) -> bool {
        let value = match truth(value) {
            Some(true) => String::from("yes"),
            Some(false) => String::from("no"),
            None => value.trim().to_ascii_lowercase(),
        };
        let plain = |text: &str| match truth(text) {
            Some(true) => String::from("yes"),
            Some(false) => String::from("no"),
            None => text.to_owned(),
        };
        !self.unless.iter().any(|harmless| plain(harmless) == value)
    }
}

/// A row of a table.
pub(super) const fn row(
    effect: Effect,
    unless: &'static [&'static str],
    why: &'static str,
    names: &'static [&'static str],
) -> Row {
    Row { effect, unless, why, names }
}

/// Other names of options; those of the second kind mean the opposite.
const SYNONYMS: &[(&str, &str, bool)] = &[
    ("allow hosts", "hosts allow", false),
    ("auto services", "preload", false),
    ("bind dns directory", "binddns dir", false),
    ("browsable", "browseable", false),
    ("casesignames", "case sensitive", false),
    ("create mode", "create mask", false),
    ("debug timestamp", "timestamp logs", false),
    ("debuglevel", "log level", false),
    ("default", "default service", false),
    ("deny hosts", "hosts deny", false),
    ("directory", "path", false),
    ("directory mode", "directory mask", false),
    ("enable spoolss", "disable spoolss", true),
    ("exec", "preexec", false),
    ("group", "force group", false),
    ("ldap password sync", "ldap passwd sync", false),
    ("lock dir", "lock directory", false),
    ("max protocol", "server max protocol", false),
    ("min protocol", "server min protocol", false),
    ("only guest", "guest only", false),
    ("prefered master", "preferred master", false),
    ("print ok", "printable", false),
    ("printcap", "printcap name", false),
    ("printer", "printer name", false),
    ("private directory", "private dir", false),
    ("protocol", "server max protocol", false),
    ("public", "guest ok", false),
    ("root", "root directory", false),
    ("root dir", "root directory", false),
    ("smb encrypt", "server smb encrypt", false),
    ("socket address", "nbt client socket address", false),
    ("unix extensions", "smb1 unix extensions", false),
    ("users", "username", false),
    ("user", "username", false),
    ("vfs object", "vfs objects", false),
    ("winbind gid", "idmap gid", false),
    ("winbind uid", "idmap uid", false),
    ("writable", "read only", true),
    ("write ok", "read only", true),
    ("writeable", "read only", true),
];

/// Returns the name by which the tables have an option, and true when it means the opposite.
/// None for an option that no table has.
pub(super) fn canonical(name: &str) -> Option<(&'static str, bool)> {
    if let Some((_, name, opposite)) = SYNONYMS.iter().find(|(other, ..)| squeezed(other) == name) {
        return Some((name, *opposite));
    }
    names().find(|known| squeezed(known) == name).map(|known| (known, false))
}

/// The names of all options.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHARE.iter().chain(super::global_options::GLOBAL).flat_map(|row| row.names).copied()
}

fn find(table: &'static [Row], name: &str) -> Option<&'static Row> {
    table.iter().find(|row| row.names.contains(&name))
}

/// The row of an option of shares, which `[global]` may set for all.
pub(super) fn of_share(name: &str) -> Option<&'static Row> {
    find(SHARE, name)
}

/// The row of an option of `[global]` alone.
pub(super) fn of_global(name: &str) -> Option<&'static Row> {
    find(super::global_options::GLOBAL, name)
}

/// The rows of options that restrict a share, with their names.
pub(super) fn restricting() -> impl Iterator<Item = (&'static Row, &'static str)> {
    let rows = SHARE.iter().filter(|row| row.effect == Opens);
    rows.flat_map(|row| row.names.iter().map(move |name| (row, *name)))
}

use Effect::{Converted, Harmless, LeftOut, Opens, Stricter};

const PRINTING: &str = "printing is not supported";
const PROGRAMS: &str = "running programs is not supported";
const CHECKING: &str = "running programs is not supported, and this one can refuse a client";
const FASTEST: &str = "Frevo uses the fastest method of the system";

/// The options of shares, and their conversion.
static SHARE: &[Row] = &[
    row(
        Converted,
        &[],
        "",
        &[
            "-valid",
            "acl flag inherited canonicalization",
            "available",
            "browseable",
            "case sensitive",
            "comment",
            "copy",
            "create mask",
            "directory mask",
            "follow symlinks",
            "force create mode",
            "force directory mode",
            "force group",
            "force user",
            "guest ok",
            "guest only",
            "hide dot files",
            "hide files",
            "hide unreadable",
            "inherit acls",
            "inherit owner",
            "inherit permissions",
            "map archive",
            "map hidden",
            "map system",
            "msdfs root",
            "msdfs shuffle referrals",
            "spotlight",
            "hosts allow",
            "hosts deny",
            "include",
            "invalid users",
            "level2 oplocks",
            "nt acl support",
            "path",
            "posix locking",
            "printable",
            "read list",
            "read only",
            "server smb encrypt",
            "smb3 unix extensions",
            "store dos attributes",
            "valid users",
            "veto files",
            "max connections",
            "vfs objects",
            "write list",
            "continuous availability",
            "dos filemode",
            "map readonly",
        ],
    ),
    row(
        Opens,
        &["no"],
        "files that a user cannot write are always listed",
        &["hide unwriteable files"],
    ),
    row(Opens, &["no"], "sockets, pipes and devices are always listed", &["hide special files"]),
    row(Opens, &["0"], "new files are listed at once", &["hide new files timeout"]),
    row(Opens, &["no"], CHECKING, &["preexec close", "root preexec close"]),
    row(Opens, &[""], "folders cannot be shown as empty", &["dont descend"]),
    row(Opens, &[""], "a share is on all addresses of the server", &["server addresses"]),
    row(
        Opens,
        &[""],
        "the share is on another server; make a link to it in a namespace (frevo namespace add)",
        &["msdfs proxy"],
    ),
    row(
        Opens,
        &["manual", "documents", "programs"],
        "clients may keep copies of files for offline use",
        &["csc policy"],
    ),
    row(
        Opens,
        &["no"],
        "notifications are sent to all users who may list the folder",
        &["honor change notify privilege"],
    ),
    row(Opens, &["yes"], "users who may write a file may set its times", &["dos filetimes"]),
    row(Opens, &["no"], "AFS is not supported", &["afs share"]),
    row(Opens, &[], "the handlers of Samba's NTVFS are not known", &["ntvfs handler"]),
    row(
        Opens,
        &[],
        "the list of users who need no password of their own is not supported",
        &["only user", "username"],
    ),
    row(
        Stricter,
        &[""],
        "nobody is root; members of the group Administrators may do more",
        &["admin users"],
    ),
    row(
        Stricter,
        &["no"],
        "members of a file's group cannot change its permissions thereby",
        &["acl group control"],
    ),
    row(
        Stricter,
        &["no"],
        "files that are marked as read-only cannot be deleted",
        &["delete readonly"],
    ),
    row(
        Stricter,
        &["no"],
        "unknown users in access lists are refused",
        &["force unknown acl user"],
    ),
    row(
        Stricter,
        &["no"],
        "folders with forbidden files cannot be deleted",
        &["delete veto files"],
    ),
    row(Stricter, &["no"], "links never lead out of a share", &["wide links"]),
    row(Stricter, &["yes"], "locks are always on", &["locking"]),
    row(Stricter, &["no"], "clients are told the truth about locks", &["fake oplocks"]),
    row(LeftOut, &["yes"], "leases and oplocks are always on", &["oplocks"]),
    row(LeftOut, &[""], "leases and oplocks are on for all files", &["veto oplock files"]),
    row(
        LeftOut,
        &["no"],
        "leases and share modes apply between clients only; see host_changes",
        &["kernel oplocks", "kernel share modes"],
    ),
    row(LeftOut, &["yes"], "extended attributes are always on", &["ea support"]),
    row(
        LeftOut,
        &[""],
        PROGRAMS,
        &[
            "preexec",
            "postexec",
            "root preexec",
            "root postexec",
            "magic script",
            "magic output",
            "dfree command",
        ],
    ),
    row(LeftOut, &[""], "the volume has the name of the share", &["volume"]),
    row(LeftOut, &["ntfs"], "the file system is called NTFS", &["fstype"]),
    row(LeftOut, &["-1"], "the number is made of the file system's", &["volume serial number"]),
    row(
        LeftOut,
        &["noindex"],
        "Frevo has an index of its own, of names, sizes and dates",
        &["spotlight backend"],
    ),
    row(LeftOut, &["yes"], "names keep their case", &["preserve case", "short preserve case"]),
    row(LeftOut, &["lower"], "names keep their case", &["default case"]),
    row(LeftOut, &["illegal", "no"], "see short_names", &["mangled names"]),
    row(LeftOut, &["~"], "see short_names", &["mangling char"]),
    row(LeftOut, &["no"], "see hidden", &["administrative share"]),
    row(
        LeftOut,
        &["no"],
        "times are exact",
        &["dos filetime resolution", "fake directory create times"],
    ),
    row(LeftOut, &["no"], "files on tapes are not known", &["dmapi support"]),
    row(Harmless, &[], "users see only the shares that they may use", &["access based share enum"]),
    row(Harmless, &[], "users who may read a file may execute it", &["acl allow execute always"]),
    row(Harmless, &[], "access is checked when a file is opened", &["acl check permissions"]),
    row(
        Harmless,
        &[],
        "access lists are kept as clients set them",
        &["acl map full control", "map acl inherit"],
    ),
    row(
        Harmless,
        &[],
        "without effect in Samba",
        &[
            "security mask",
            "directory security mask",
            "force security mode",
            "force directory security mode",
        ],
    ),
    row(Harmless, &[], "a lock waits if the client asks for it", &["blocking locks"]),
    row(
        Harmless,
        &[],
        "locks are always enforced",
        &["strict locking", "smbd force process locks"],
    ),
    row(Harmless, &[], "a flush always reaches the disk", &["strict sync", "sync always"]),
    row(Harmless, &[], "handles outlive their connections", &["durable handles"]),
    row(
        Harmless,
        &[],
        "share modes are always checked",
        &[
            "share modes",
            "strict rename",
            "smbd getinfo ask sharemode",
            "smbd search ask sharemode",
            "check parent directory delete on close",
        ],
    ),
    row(
        Harmless,
        &[],
        FASTEST,
        &[
            "aio read size",
            "aio write size",
            "aio write behind",
            "use sendfile",
            "strict allocate",
            "allocation roundup size",
            "block size",
            "dfree cache time",
            "smbd async dosmode",
            "smbd max async dosmode",
            "smbd max xattr size",
            "vfs mkdir use tmp name",
            "smbd profiling share",
            "getwd cache",
        ],
    ),
    row(
        Harmless,
        &[],
        PRINTING,
        &[
            "cups options",
            "default devmode",
            "force printername",
            "lppause command",
            "lpq command",
            "lpresume command",
            "lprm command",
            "max print jobs",
            "max reported print jobs",
            "min print space",
            "print command",
            "print notify backchannel",
            "printer name",
            "printing",
            "printjob username",
            "queuepause command",
            "queueresume command",
            "use client driver",
        ],
    ),
];
