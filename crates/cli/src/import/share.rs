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
    ("hide files", "see hide_files"),
    ("hide unwriteable files", "files that a user cannot write are always listed"),
    ("max connections", "the connections to a share cannot be limited"),
    ("preexec close", "running programs is not supported"),
    ("root preexec close", "running programs is not supported"),
    ("veto files", "forbidding files by name is not supported"),
];

/// Parameters without an equal that lets anybody in further, and why.
const WITHOUT_EQUAL: &[(&str, &str)] = &[
    ("access based share enum", "not needed; users see only the shares that they may use"),
    ("acl allow execute always", "users who may read a file may execute it"),
    ("admin users", "not supported; use the group Administrators"),
    ("blocking locks", "not needed; a lock waits if the client asks for it"),
    ("delete veto files", "forbidding files by name is not supported"),
    ("dos filemode", "the file system decides about permissions"),
    ("dos filetimes", "not needed; users who may write a file may set its times"),
    ("ea support", "not needed; extended attributes are always on"),
    ("force create mode", "see file_mode"),
    ("force directory mode", "see directory_mode"),
    ("guest account", "guests are not supported"),
    ("hide special files", "special files cannot be hidden"),
    ("inherit acls", "set default ACLs with setfacl -d"),
    ("inherit owner", "the file system decides about permissions"),
    ("inherit permissions", "set default ACLs with setfacl -d"),
    ("kernel oplocks", "leases apply between clients only"),
    ("kernel share modes", "share modes apply between clients only"),
    ("level2 oplocks", "see level2_oplocks"),
    ("locking", "not needed; locks are always on"),
    ("map archive", "not needed; DOS attributes are stored apart from permissions"),
    ("map hidden", "not needed; DOS attributes are stored apart from permissions"),
    ("map readonly", "not needed; DOS attributes are stored apart from permissions"),
    ("map system", "not needed; DOS attributes are stored apart from permissions"),
    ("nt acl support", "the file system decides about permissions"),
    ("oplocks", "leases are always on"),
    ("posix locking", "see posix_locks"),
    ("postexec", "running programs is not supported"),
    ("preexec", "running programs is not supported"),
    ("preserve case", "not needed; names keep their case"),
    ("root postexec", "running programs is not supported"),
    ("root preexec", "running programs is not supported"),
    ("short preserve case", "not needed; names keep their case"),
    ("default case", "not needed; names keep their case"),
    ("strict allocate", "space is allocated when data is written"),
    ("strict locking", "not needed; locks are always enforced"),
    ("strict sync", "not needed; a flush always reaches the disk"),
    ("sync always", "not needed; a flush always reaches the disk"),
    ("veto oplock files", "leases are on for all files"),
    ("volume", "the volume has the name of the share"),
    ("wide links", "not supported; links never lead out of a share"),
];

/// Samba's modules, and what stands for them.
const MODULES: &[(&str, &str)] = &[
    ("acl_xattr", "not needed; see nt_acls"),
    ("aio_pthread", "not needed; Frevo uses the fastest method of the system"),
    ("btrfs", "not needed; reflinks are always used"),
    ("catia", "translating names is not supported"),
    ("fruit", "not needed; support for macOS is always on; see time_machine"),
    ("full_audit", "see [audit]"),
    ("io_uring", "not needed; Frevo uses the fastest method of the system"),
    ("recycle", "a recycle bin is not supported"),
    ("shadow_copy2", "see snapshots"),
    ("streams_xattr", "not needed; see streams"),
];

/// True for a parameter that `[global]` sets for all shares.
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
                "home folders are not shared automatically; add a [[share]] for each",
            );
            return String::new();
        }
        "printers" | "print$" => {
            report.left_out(&section.name, "printing is not supported");
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
        commented.push_str(&comment(&format!("Not shared: {reason}")));
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
            None | Some("") => reasons.push(String::from("the path is missing")),
            Some(path) if path.contains('%') => {
                reasons
                    .push(format!("the path {path} has a % substitution, which is not supported"));
            }
            Some(path) if !path.starts_with('/') => {
                reasons.push(format!("the path {path} is not absolute"));
            }
            Some(_) => {}
        }
        for (key, names) in
            [("force user", &["force user"][..]), ("force group", &["force group", "group"])]
        {
            if let Some(value) = self.value(names).filter(|value| value.contains('%')) {
                reasons.push(format!("{key} = {value}: % substitutions are not supported"));
            }
        }
        if self.truth(&["printable", "print ok"]) == Some(true) {
            reasons.push(String::from("it is a printer; printing is not supported"));
        }
        if self.truth(&["available"]) == Some(false) {
            reasons.push(String::from("available = no"));
        }
        if self.section.value(&["copy", "include"]).is_some() {
            reasons.push(String::from(
                "it takes parameters from elsewhere; run `testparm -s` and import its output",
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
                report.dropped(name, "comment", "% substitutions are not supported");
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
                "encryption cannot be switched off for one share only",
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
                "a group cannot be forced for its members only; use chmod g+s on the folder",
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
            report.dropped(name, "guest ok", "guests are not supported; everyone logs on");
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
                report.dropped(name, known, &module_option(known));
            } else {
                report.dropped(name, known, "Frevo has no such setting");
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

/// The reason why an option of a module of Samba's, such as `fruit:metadata`, is dropped.
pub(super) fn module_option(name: &str) -> String {
    let module = name.split(':').next().unwrap_or(name).trim();
    let why = MODULES.iter().find(|(known, _)| *known == module);
    let why = why.map_or("which Frevo does not have", |(_, why)| why);
    format!("an option of Samba's module {module}, {why}")
}

fn report_modules(share: &str, value: &str, report: &mut Report) {
    for module in list(value) {
        let why = MODULES.iter().find(|(name, _)| *name == module);
        let why = why.map_or("Frevo has no such module", |(_, why)| why);
        report.dropped(share, &format!("vfs objects = {module}"), why);
    }
}
