//! A section of smb.conf to `[[share]]`.

use frevo_server::config::{Mode, ShareName};

use super::access_options;
use super::global::{encryption, line, quoted};
use super::report::Report;
use super::smb_conf::{Section, list, truth};

/// Parameters of shares that have an equal; in `[global]` they are the default
/// for all shares.
const WITH_EQUAL: &[&str] = &[
    "available",
    "browsable",
    "browseable",
    "case sensitive",
    "casesignames",
    "comment",
    "acl flag inherited canonicalization",
    "create mask",
    "create mode",
    "directory mask",
    "directory mode",
    "directory",
    "follow symlinks",
    "force group",
    "force user",
    "group",
    "hide dot files",
    "hide unreadable",
    "only user",
    "path",
    "printable",
    "print ok",
    "public",
    "guest ok",
    "guest only",
    "only guest",
    "read only",
    "server smb encrypt",
    "smb encrypt",
    "store dos attributes",
    "user",
    "username",
    "users",
    "writable",
    "write ok",
    "writeable",
];

/// Parameters by which Samba lets fewer in, or lets them do less. A share that
/// has one must not come out more open.
const NARROWING: &[(&str, &str)] = &[
    ("hide files", "files cannot be hidden by name"),
    ("hide unwriteable files", "what cannot be written is listed"),
    ("max connections", "connections to a share are not counted"),
    ("preexec close", "no program is run"),
    ("root preexec close", "no program is run"),
    ("veto files", "files cannot be left out by name"),
];

/// Parameters without an equal that lets anybody in further, and why.
const WITHOUT_EQUAL: &[(&str, &str)] = &[
    ("access based share enum", "a share is listed to those alone who may use it"),
    ("acl allow execute always", "who may read may execute"),
    ("admin users", "nobody is more than the others"),
    ("blocking locks", "locks wait when clients ask for it"),
    ("delete veto files", "files cannot be left out by name"),
    ("dos filemode", "permissions are the file system's"),
    ("dos filetimes", "who may write may set times"),
    ("ea support", "extended attributes are always there"),
    ("force create mode", "see file_mode"),
    ("force directory mode", "see directory_mode"),
    ("guest account", "there are no guests"),
    ("hide special files", "only files and folders are shown"),
    ("inherit acls", "set default ACLs with setfacl -d"),
    ("inherit owner", "permissions are the file system's"),
    ("inherit permissions", "set default ACLs with setfacl -d"),
    ("kernel oplocks", "leases are between clients"),
    ("kernel share modes", "share modes are between clients"),
    ("level2 oplocks", "leases are always there"),
    ("locking", "locks are always there"),
    ("map archive", "DOS attributes are kept apart from permissions"),
    ("map hidden", "DOS attributes are kept apart from permissions"),
    ("map readonly", "DOS attributes are kept apart from permissions"),
    ("map system", "DOS attributes are kept apart from permissions"),
    ("nt acl support", "permissions are the file system's"),
    ("oplocks", "leases are always there"),
    ("posix locking", "locks are between clients"),
    ("postexec", "no program is run"),
    ("preexec", "no program is run"),
    ("preserve case", "names are kept as they are written"),
    ("root postexec", "no program is run"),
    ("root preexec", "no program is run"),
    ("short preserve case", "names are kept as they are written"),
    ("default case", "names are kept as they are written"),
    ("strict allocate", "space is taken when it is written"),
    ("strict locking", "locks are always obeyed"),
    ("strict sync", "what clients want on the disk gets there"),
    ("sync always", "what clients want on the disk gets there"),
    ("veto oplock files", "leases are for all files"),
    ("volume", "the volume is called as the share"),
    ("wide links", "links never lead out of a share"),
];

/// Samba's modules, and what stands for them.
const MODULES: &[(&str, &str)] = &[
    ("acl_xattr", "Windows access lists are kept in the same place without a module"),
    ("aio_pthread", "the fastest way that the system has is taken"),
    ("btrfs", "reflinks need no module"),
    ("catia", "names are not translated"),
    ("fruit", "what macOS asks is answered without a module; see time_machine"),
    ("full_audit", "sessions and tree connects are logged"),
    ("io_uring", "the fastest way that the system has is taken"),
    ("recycle", "there is no recycle bin"),
    ("shadow_copy2", "say where the snapshots are: see snapshots"),
    ("streams_xattr", "named streams need no module"),
];

/// Whether a parameter of `[global]` is a default for shares.
pub(super) fn is_share_parameter(name: &str) -> bool {
    WITH_EQUAL.contains(&name)
        || access_options::is_rule(name)
        || name == "vfs objects"
        || NARROWING.iter().chain(WITHOUT_EQUAL).any(|(parameter, _)| *parameter == name)
}

/// The `[[share]]` of a section; a comment, if it must not be used as it is.
pub(super) fn convert(section: &Section, global: &Section, report: &mut Report) -> String {
    let share = Share { section, global };
    match section.name.to_ascii_lowercase().as_str() {
        "homes" => {
            report.left_out(
                "homes",
                "home folders are not shared by themselves; add a [[share]] each",
            );
            return String::new();
        }
        "printers" | "print$" => {
            report.left_out(&section.name, "Frevo does not print");
            return String::new();
        }
        _ => {}
    }
    let reasons_against = share.reasons_against();
    let mut toml = String::from("[[share]]\n");
    share.write(report, &mut toml);
    if reasons_against.is_empty() {
        return format!("\n{toml}");
    }
    let mut commented = String::from("\n");
    for reason in &reasons_against {
        report.left_out(&section.name, reason);
        commented.push_str(&comment(&format!("Left out: {reason}")));
    }
    toml.lines().for_each(|written| commented.push_str(&comment(written)));
    commented
}

/// A line of a comment. TOML has no control characters there, but a tab.
fn comment(text: &str) -> String {
    let mut line = String::from("# ");
    for c in text.chars() {
        if c.is_control() && c != '\t' {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

struct Share<'a> {
    section: &'a Section,
    global: &'a Section,
}

impl Share<'_> {
    /// The value in the section or, failing that, in `[global]`.
    fn value(&self, names: &[&str]) -> Option<&str> {
        self.section.value(names).or_else(|| self.global.value(names))
    }

    fn truth(&self, names: &[&str]) -> Option<bool> {
        self.value(names).and_then(truth)
    }

    /// Why the share cannot be used as it is written.
    fn reasons_against(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Err(why) = self.section.name.parse::<ShareName>() {
            reasons.push(why);
        }
        match self.value(&["path", "directory"]) {
            None | Some("") => reasons.push(String::from("it has no path")),
            Some(path) if path.contains('%') => {
                reasons.push(format!("its path {path} has a % substitution"));
            }
            Some(path) if !path.starts_with('/') => {
                reasons.push(format!("its path {path} is not absolute"));
            }
            Some(_) => {}
        }
        for (key, names) in
            [("force user", &["force user"][..]), ("force group", &["force group", "group"])]
        {
            if let Some(value) = self.value(names).filter(|value| value.contains('%')) {
                reasons.push(format!("{key} = {value}: there are no % substitutions"));
            }
        }
        if self.truth(&["printable", "print ok"]) == Some(true) {
            reasons.push(String::from("it is a printer"));
        }
        if self.truth(&["available"]) == Some(false) {
            reasons.push(String::from("available = no"));
        }
        if self.section.value(&["copy", "include"]).is_some() {
            reasons.push(String::from(
                "it takes parameters from elsewhere; run `testparm -s` and import what it prints",
            ));
        }
        for (name, why) in NARROWING {
            let value = self.value(&[name]).filter(|value| !is_without_effect(name, value));
            if let Some(value) = value {
                reasons.push(format!("{name} = {value}: {why}"));
            }
        }
        reasons.extend(access_options::convert(|names| self.value(names)).1);
        reasons
    }

    fn write(&self, report: &mut Report, toml: &mut String) {
        let name = &self.section.name;
        line(toml, "name", &quoted(name));
        let path = self.value(&["path", "directory"]).unwrap_or_default();
        line(toml, "path", &quoted(path));
        match self.value(&["comment"]) {
            Some(comment) if comment.contains('%') => {
                report.dropped(name, "comment", "there are no % substitutions");
            }
            Some("") | None => {}
            Some(comment) => line(toml, "comment", &quoted(comment)),
        }
        if self.is_read_only() {
            line(toml, "read_only", "true");
        }
        if self.truth(&["browseable", "browsable"]) == Some(false) {
            line(toml, "hidden", "true");
        }
        if self.truth(&["hide unreadable"]) == Some(true) {
            line(toml, "hide_unreadable", "true");
        }
        if self.truth(&["acl flag inherited canonicalization"]) == Some(false) {
            line(toml, "inherited_as_set", "true");
        }
        let encrypt = self.section.value(&["server smb encrypt", "smb encrypt"]);
        match encrypt.map(|value| (value, encryption(value))) {
            None | Some((_, Some("offered"))) => {}
            Some((_, Some("required"))) => line(toml, "encrypt", "true"),
            Some((value, _)) => report.dropped(
                name,
                &format!("smb encrypt = {value}"),
                "encryption is switched off for the server or not at all",
            ),
        }
        self.write_identities(report, toml);
        for (key, words) in access_options::convert(|names| self.value(names)).0 {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            line(toml, key, &format!("[{}]", words.join(", ")));
        }
        self.write_files(report, toml);
        self.report_rest(report);
    }

    /// Samba uses files as who has logged on, unless it is told otherwise.
    fn write_identities(&self, report: &mut Report, toml: &mut String) {
        let name = &self.section.name;
        let host = |names: &[&str]| self.value(names).filter(|value| !value.is_empty());
        match host(&["force user"]) {
            Some(user) => line(toml, "force_user", &quoted(user)),
            None => line(toml, "run_as", "\"user\""),
        }
        match host(&["force group", "group"]) {
            Some(group) if group.starts_with('+') => report.dropped(
                name,
                &format!("force group = {group}"),
                "a group is forced for all or for none; its members set it with chmod g+s",
            ),
            Some(group) => line(toml, "force_group", &quoted(group)),
            None => {}
        }
    }

    fn is_read_only(&self) -> bool {
        // Among the section's own, the last one counts, whatever it is called.
        let last = |section: &Section| {
            section.parameters.iter().rev().find_map(|parameter| match &*parameter.name {
                "read only" => truth(&parameter.value),
                "writable" | "writeable" | "write ok" => truth(&parameter.value).map(|yes| !yes),
                _ => None,
            })
        };
        last(self.section).or_else(|| last(self.global)).unwrap_or(true)
    }

    /// How files are shown and made.
    fn write_files(&self, report: &mut Report, toml: &mut String) {
        let name = &self.section.name;
        if self.truth(&["case sensitive", "casesignames"]) == Some(true) {
            line(toml, "case_sensitive", "true");
        }
        let modes: [(&str, &[&str]); 2] = [
            ("file_mode", &["create mask", "create mode"]),
            ("directory_mode", &["directory mask", "directory mode"]),
        ];
        for (key, names) in modes {
            let Some(value) = self.value(names) else { continue };
            match value.parse::<Mode>() {
                Ok(mode) => line(toml, key, &format!("\"{:04o}\"", mode.0)),
                Err(why) => report.dropped(name, names[0], &why),
            }
        }
        if self.truth(&["store dos attributes"]) == Some(false) {
            line(toml, "dos_attributes", "false");
        }
        if self.truth(&["hide dot files"]) == Some(false) {
            line(toml, "hide_dot_files", "false");
        }
        if self.truth(&["follow symlinks"]).unwrap_or(true) {
            line(toml, "follow_symlinks", "true");
        }
    }

    fn report_rest(&self, report: &mut Report) {
        let name = &self.section.name;
        if self.truth(&["guest ok", "public", "guest only", "only guest"]) == Some(true) {
            report.dropped(name, "guest ok", "there are no guests: everybody logs on");
        }
        for parameter in &self.section.parameters {
            let known = &*parameter.name;
            let narrowing = NARROWING.iter().any(|(narrowing, _)| *narrowing == known);
            if WITH_EQUAL.contains(&known)
                || access_options::is_rule(known)
                || narrowing
                || matches!(known, "copy" | "include")
            {
                continue;
            }
            if known == "vfs objects" {
                report_modules(name, &parameter.value, report);
            } else if let Some((_, why)) = WITHOUT_EQUAL.iter().find(|(p, _)| *p == known) {
                report.dropped(name, known, why);
            } else if known.contains(':') {
                report.dropped(name, known, "it is for one of Samba's modules");
            } else {
                report.dropped(name, known, "Frevo has nothing like it");
            }
        }
        if let (None, Some(modules)) =
            (self.section.value(&["vfs objects"]), self.global.value(&["vfs objects"]))
        {
            report_modules(name, modules, report);
        }
    }
}

/// A narrowing parameter with a value that narrows nothing.
fn is_without_effect(name: &str, value: &str) -> bool {
    match name {
        "max connections" => value == "0",
        "hide unwriteable files" | "preexec close" | "root preexec close" => {
            truth(value) == Some(false)
        }
        _ => value.is_empty(),
    }
}

fn report_modules(share: &str, value: &str, report: &mut Report) {
    for module in list(value) {
        let why = MODULES.iter().find(|(name, _)| *name == module);
        let why = why.map_or("there are no modules", |(_, why)| why);
        report.dropped(share, &format!("vfs objects = {module}"), why);
    }
}
