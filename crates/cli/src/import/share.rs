//! A section of smb.conf to `[[share]]`.

use frevo_config::{ShareName, nearest};

use super::access_options::{NAMES, Names};
use super::conversion::{Conversion, ShareParameters};
use super::dfs_links::{self, DfsRoot};
use super::guests::{self, ShareGuests};
use super::host_facts::HostFacts;
use super::hosts::Hosts;
use super::modes::{self, ShareModes};
use super::names::NameRules;
use super::options::{self, Effect};
use super::report::{Report, Weight};
use super::smb_conf::{Parameter, Section};
use super::toml_text::{encryption, line, quoted};
use super::words::{list, squeezed, truth};
use super::{modules, share_modules};

/// The word for the user in a path, and the name of a share that each user has.
const USER: &str = "{user}";

/// The `[[share]]` of a section; a comment, if it must not be used as it is.
pub(super) fn convert(section: &Section, conversion: &mut Conversion<'_>) -> String {
    let name = section.name.to_ascii_lowercase();
    let reason = match &*name {
        "printers" | "print$" => "printing is not supported",
        _ => return convert_folder(section, conversion),
    };
    conversion.report.note(Weight::NotShared, &section.name, reason);
    String::new()
}

/// True if some section that becomes a share lets guests in.
pub(super) fn let_guests_in(conversion: &Conversion<'_>) -> bool {
    conversion.conf.shares().any(|section| {
        let share = Share::new(section, conversion);
        share.is_converted(conversion) && share.guests().are_let_in()
    })
}

fn convert_folder(section: &Section, conversion: &mut Conversion<'_>) -> String {
    let share = Share::new(section, conversion);
    let (accepted, reasons): (Vec<Reason<'_>>, Vec<Reason<'_>>) =
        share.reasons_against().into_iter().partition(|reason| conversion.accepts(&reason.option));
    let report = &mut conversion.report;
    for reason in &accepted {
        reason.report(Weight::LeftOut, &section.name, "accepted", report);
    }
    let mut toml = String::from("[[share]]\n");
    share.write(report, &mut toml);
    if let Some(root) = share.dfs_root() {
        dfs_links::write(&root, report, &mut toml);
    }
    if reasons.is_empty() {
        return format!("\n{toml}");
    }
    let mut commented = String::from("\n");
    for reason in &reasons {
        reason.report(Weight::NotShared, &section.name, &reason.why, report);
        commented.push_str(&comment(&format!("Not shared: {}", reason.shown())));
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

/// A reason why a share cannot be used as it is written.
pub(super) struct Reason<'a> {
    /// The option or module that --accept can name; empty for none.
    option: String,
    parameter: Option<&'a Parameter>,
    why: String,
}

impl<'a> Reason<'a> {
    pub(super) fn of(parameter: &'a Parameter, why: impl Into<String>) -> Self {
        Self { option: parameter.name.clone(), parameter: Some(parameter), why: why.into() }
    }

    pub(super) fn of_module(module: &str, parameter: &'a Parameter, why: &str) -> Self {
        let why = format!("{module}: {why}");
        Self { option: module.to_owned(), parameter: Some(parameter), why }
    }

    /// A reason that no --accept removes.
    fn lasting(why: impl Into<String>) -> Self {
        Self { option: String::new(), parameter: None, why: why.into() }
    }

    fn shown(&self) -> String {
        match self.parameter {
            Some(parameter) => format!("{}: {}", parameter.shown, self.why),
            None => self.why.clone(),
        }
    }

    fn report(&self, weight: Weight, section: &str, why: &str, report: &mut Report) {
        match self.parameter {
            Some(parameter) => report.parameter(weight, section, parameter, why),
            None => report.note(weight, section, why),
        }
    }
}

/// A section with the defaults of `[global]`.
pub(super) struct Share<'a> {
    pub(super) section: &'a Section,
    pub(super) global: &'a Section,
    /// Names of the modules in `vfs objects`.
    pub(super) modules: Vec<String>,
    names: NameRules,
    host: &'a HostFacts,
    /// Some share of the file lets guests in.
    lets_guests_in: bool,
}

impl<'a> Share<'a> {
    pub(super) fn new(section: &'a Section, conversion: &Conversion<'a>) -> Self {
        let mut share = Self {
            section,
            global: conversion.global,
            modules: Vec::new(),
            names: conversion.names.clone(),
            host: conversion.host,
            lets_guests_in: conversion.lets_guests_in,
        };
        share.modules = share.value("vfs objects").map(list).unwrap_or_default();
        share
    }

    const fn parameters(&self) -> ShareParameters<'a> {
        ShareParameters { section: self.section, global: self.global }
    }

    /// The parameter in the section or, failing that, in `[global]`.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a Parameter> {
        self.parameters().parameter(name)
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.parameters().value(name)
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        self.parameters().truth(name)
    }

    /// True when the share loads a module.
    pub(super) fn loads(&self, module: &str) -> bool {
        self.modules.iter().any(|word| {
            word.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case(module))
        })
    }

    fn guests(&self) -> ShareGuests<'a> {
        ShareGuests {
            of: self.parameters(),
            user: self.guest_user(),
            is_read_only: self.is_read_only(),
            is_of_users: self.is_of_users(),
            lets_guests_in: self.lets_guests_in,
        }
    }

    fn modes(&self) -> ShareModes<'a> {
        let has_lists = self.loads("acl_xattr");
        ShareModes { of: self.parameters(), has_lists }
    }

    /// A value with the name of the share for `%S`.
    fn substituted(&self, value: &str) -> String {
        value.replace("%S", &self.name())
    }

    /// A list of users. Only its user may use a home folder, so a list that has this user needs no
    /// entry there.
    fn listed(&self, names: &Names, value: &str) -> String {
        if self.has_own_user(names, value) {
            String::new()
        } else if self.is_homes() {
            // In [homes] `%S` is the name of each user, so it has no fixed value to be replaced by.
            value.to_owned()
        } else {
            self.substituted(value)
        }
    }

    /// True for a list that gives rights to the user of a home folder.
    fn has_own_user(&self, names: &Names, value: &str) -> bool {
        let is_user = |word: &String| {
            let word = word.replace("%w", "\\");
            let (domain, user) = word.rsplit_once('\\').unwrap_or(("", &word));
            let is_own = domain.is_empty()
                || domain == "%D"
                || domain.eq_ignore_ascii_case(&self.names.workgroup);
            is_own && matches!(user, "%S" | "%U" | "%u")
        };
        self.is_homes() && names.gives && list(value).iter().any(is_user)
    }

    /// True for the share of home folders.
    fn is_homes(&self) -> bool {
        self.section.name.eq_ignore_ascii_case("homes")
    }

    /// The name of the share; `{user}` for that of home folders.
    fn name(&self) -> String {
        if self.is_homes() { String::from(USER) } else { self.section.name.clone() }
    }

    /// The path, with `{user}` for Samba's words for the user. Home folders are taken to be in
    /// `/home`.
    pub(super) fn path(&self) -> String {
        let home = format!("/home/{USER}");
        let path = match self.value("path") {
            None | Some("") if self.is_homes() => home.clone(),
            path => self.substituted(path.unwrap_or_default()),
        };
        let path = if self.is_homes() || path.starts_with("%H") {
            path.replace("%H", &home)
        } else {
            path
        };
        path.replace("%U", USER).replace("%u", USER)
    }

    /// The share as the root of a namespace. None for a share that is none.
    fn dfs_root(&self) -> Option<DfsRoot<'a>> {
        let parameter = self.parameter("msdfs root")?;
        let has_dfs = self.global.value("host msdfs").and_then(truth) != Some(false);
        (has_dfs && truth(&parameter.value) == Some(true)).then(|| DfsRoot {
            name: &self.section.name,
            parameter,
            is_shuffled: self.truth("msdfs shuffle referrals") == Some(true),
            has_user_part: self.name().contains(USER) || self.path().contains(USER),
            links: self.host.dfs_links.get(&self.section.name.to_ascii_lowercase()),
        })
    }

    /// True when the path is the home folder of the user.
    fn has_home_path(&self) -> bool {
        match self.value("path").unwrap_or_default() {
            "" => self.is_homes(),
            path => path.contains("%H"),
        }
    }

    /// Why the share cannot be used as it is written.
    fn reasons_against(&self) -> Vec<Reason<'a>> {
        let mut reasons = Vec::new();
        if let Err(why) = self.section.name.parse::<ShareName>() {
            reasons.push(Reason::lasting(why));
        }
        let path = self.path();
        if path.is_empty() {
            reasons.push(Reason::lasting("the path is missing"));
        } else if path.contains('%') {
            let why = format!("the path {path} has a % substitution, which is not supported");
            reasons.push(Reason::lasting(why));
        } else if !path.starts_with('/') {
            reasons.push(Reason::lasting(format!("the path {path} is not absolute")));
        }
        if self.truth("printable") == Some(true) {
            reasons.push(Reason::lasting("it is a printer; printing is not supported"));
        }
        for name in ["available", "-valid"] {
            if let Some(parameter) = self.parameter(name).filter(|p| truth(&p.value) != Some(true))
            {
                reasons.push(Reason::of(parameter, "the share is not in use"));
            }
        }
        if let Some(parameter) = self.section.parameter("copy") {
            let why = "it takes parameters from another share; write them in its place. The output of \
                       `testparm -s` has them already: import it with --testparm";
            reasons.push(Reason::of(parameter, why));
        }
        if let Some(parameter) = self.section.parameter("include") {
            let why = "what that file says is not known here, or depends on the client; write its lines \
                       in its place";
            reasons.push(Reason::of(parameter, why));
        }
        for (row, name) in options::restricting() {
            let parameter = self.parameter(name).filter(|p| row.applies_to(&p.value));
            reasons.extend(parameter.map(|parameter| Reason::of(parameter, row.why)));
        }
        self.reasons_of_access(&mut reasons);
        share_modules::reasons_against(self, &mut reasons);
        let is_unknown = |parameter: &&Parameter| {
            let name = &*parameter.name;
            !name.contains(':')
                && options::of_share(name).is_none()
                && options::of_global(name).is_none()
                && !self.is_ignored(name)
        };
        for parameter in self.section.parameters.iter().filter(is_unknown) {
            let near = nearest(&parameter.name, options::names());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let why = format!("unknown to Frevo, as is whether it restricts users{near}");
            reasons.push(Reason::of(parameter, why));
        }
        reasons
    }

    /// Reasons in lists of users and hosts, users and groups of the host, and permissions.
    fn reasons_of_access(&self, reasons: &mut Vec<Reason<'a>>) {
        for names in &NAMES {
            let Some(parameter) = self.parameter(names.option) else { continue };
            let value = self.listed(names, &parameter.value);
            if let Err(why) = names.convert(&value, &self.names) {
                reasons.push(Reason::of(parameter, why));
            }
        }
        if let Some(parameter) = self.parameter("valid users")
            && self.list_of("valid users").is_some_and(|allow| !allow.is_empty())
            && self.allowed().is_empty()
        {
            let why = "invalid users has all of them, so nobody may connect";
            reasons.push(Reason::of(parameter, why));
        }
        if let Err((name, why)) = self.hosts() {
            match self.parameter(name) {
                Some(parameter) => reasons.push(Reason::of(parameter, why)),
                None => reasons.push(Reason::lasting(why)),
            }
        }
        let is_number = |parameter: &&Parameter| parameter.value.parse::<usize>().is_ok();
        if let Some(parameter) = self.parameter("max connections").filter(|p| !is_number(p)) {
            reasons.push(Reason::of(parameter, "it is not a number"));
        }
        if let Some(parameter) = self.parameter("veto files").filter(|p| p.value.contains('%')) {
            reasons.push(Reason::of(parameter, "% substitutions are not supported"));
        }
        for name in ["force user", "force group"] {
            let Some(parameter) = self.parameter(name) else { continue };
            if name == "force user" && self.is_forced_to_itself() {
                continue;
            }
            if parameter.value.contains('%') {
                reasons.push(Reason::of(parameter, "% substitutions are not supported"));
            } else if parameter.value.starts_with(['+', '@', '&']) {
                let why = "a group cannot be forced for its members only; use force_group if all \
                           users are members, or chmod g+s on the folder";
                reasons.push(Reason::of(parameter, why));
            }
        }
        let faults = self.modes().faults().into_iter();
        reasons.extend(faults.map(|fault| Reason::of(fault.parameter, fault.why)));
        let encrypt = self.section.parameter("server smb encrypt");
        if let Some(parameter) = encrypt.filter(|p| encryption(&p.value).is_none()) {
            reasons.push(Reason::of(parameter, "unknown value"));
        }
        let of_all = self.global.value("server smb encrypt").and_then(encryption);
        if let Some(parameter) = encrypt.filter(|p| encryption(&p.value) == Some("required"))
            && of_all == Some("off")
        {
            let why = "[global] switches encryption off, so nobody could connect";
            reasons.push(Reason::of(parameter, why));
        }
    }

    /// True for an option that the Samba of this host ignores.
    fn is_ignored(&self, name: &str) -> bool {
        self.host.ignored.contains(&squeezed(name))
    }

    /// True when files are used as the user who has logged on, in other words.
    fn is_forced_to_itself(&self) -> bool {
        let user = self.value("force user").unwrap_or_default();
        matches!(user, "%U" | "%u") || self.is_homes() && user == "%S"
    }

    /// A list of users, converted. None where there is none, or it has no equal.
    fn list_of(&self, option: &str) -> Option<Vec<String>> {
        let names = NAMES.iter().find(|names| names.option == option)?;
        let value = self.listed(names, self.value(option)?);
        names.convert(&value, &self.names).ok().map(|converted| converted.words)
    }

    /// The users of `valid users` that `invalid users` does not name.
    fn allowed(&self) -> Vec<String> {
        let denied = self.list_of("invalid users").unwrap_or_default();
        let is_denied = |who: &String| denied.iter().any(|other| other.eq_ignore_ascii_case(who));
        let allowed = self.list_of("valid users").unwrap_or_default();
        allowed.into_iter().filter(|who| !is_denied(who)).collect()
    }

    /// The rules for addresses. Those of `[global]` hold for all shares, also where a share has
    /// its own.
    fn hosts(&self) -> Result<Hosts, (&'static str, String)> {
        let value = |section: &'a Section, name| section.value(name);
        let of_all =
            Hosts::convert(value(self.global, "hosts allow"), value(self.global, "hosts deny"))?;
        let own = Hosts::convert(self.value("hosts allow"), self.value("hosts deny"))?;
        own.and(&of_all).ok_or_else(|| {
            let why = "the lists of [global] and of the share cannot be joined; write one list";
            ("hosts deny", String::from(why))
        })
    }

    fn write(&self, report: &mut Report, toml: &mut String) {
        let name = &self.section.name;
        line(toml, "name", &quoted(&self.name()));
        if self.has_home_path() {
            let what = "home folders are taken to be /home/USER; change the path if they are not";
            report.note(Weight::LeftOut, name, what);
        }
        line(toml, "path", &quoted(&self.path()));
        match self.parameter("comment") {
            Some(comment) if comment.value.contains('%') => {
                let why = "% substitutions are not supported";
                report.parameter(Weight::LeftOut, name, comment, why);
            }
            Some(comment) if !comment.value.is_empty() => {
                line(toml, "comment", &quoted(&comment.value));
            }
            _ => {}
        }
        if self.is_read_only() {
            line(toml, "read_only", "true");
        }
        for (option, value, key) in [
            ("browseable", false, "hidden"),
            ("hide unreadable", true, "hide_unreadable"),
            ("acl flag inherited canonicalization", false, "inherited_as_set"),
            ("continuous availability", true, "continuous"),
            ("case sensitive", true, "case_sensitive"),
            ("posix locking", true, "posix_locks"),
        ] {
            if self.truth(option) == Some(value) {
                line(toml, key, "true");
            }
        }
        match self.section.parameter("server smb encrypt").map(|p| (p, encryption(&p.value))) {
            None | Some((_, None | Some("offered"))) => {}
            Some((_, Some("required"))) => line(toml, "encrypt", "true"),
            Some((parameter, _)) => {
                let why = "encryption cannot be switched off for one share only";
                report.parameter(Weight::Stricter, name, parameter, why);
            }
        }
        guests::write(&self.guests(), report, toml);
        self.write_identities(toml);
        self.write_access(report, toml);
        modes::write(&self.modes(), report, toml);
        self.write_files(toml);
        modes::write_plain(&self.modes(), report, toml);
        share_modules::write(self, report, toml);
        self.report_rest(report);
    }

    /// Samba uses files as the user that has logged on, unless it is told otherwise.
    fn write_identities(&self, toml: &mut String) {
        let host = |name: &str| self.value(name).filter(|value| !value.is_empty());
        let is_guest =
            self.truth("guest ok") == Some(true) && self.truth("guest only") == Some(true);
        let forced = host("force user").filter(|_| !self.is_forced_to_itself());
        match forced.or_else(|| is_guest.then(|| self.guest_user())) {
            Some(user) => line(toml, "force_user", &quoted(user)),
            None => line(toml, "run_as", "\"user\""),
        }
        if let Some(group) = host("force group") {
            line(toml, "force_group", &quoted(group));
        }
    }

    /// The user of the host that guests act as: the one that everybody does, or the guest account.
    fn guest_user(&self) -> &'a str {
        let host = |name: &str| self.value(name).filter(|value| !value.is_empty());
        let forced = host("force user").filter(|_| !self.is_forced_to_itself());
        forced.or_else(|| host("guest account")).unwrap_or("nobody")
    }

    /// True for a share with a folder for each user.
    fn is_of_users(&self) -> bool {
        self.name().contains(USER) || self.path().contains(USER)
    }

    /// True for a section that becomes a share.
    fn is_converted(&self, conversion: &Conversion<'_>) -> bool {
        let is_printing =
            ["printers", "print$"].iter().any(|name| self.section.name.eq_ignore_ascii_case(name));
        !is_printing
            && self.reasons_against().iter().all(|reason| conversion.accepts(&reason.option))
    }

    fn write_access(&self, report: &mut Report, toml: &mut String) {
        // The Samba module `readonly` forbids all users to write, whatever the write lists say.
        let is_frozen = self.loads("readonly");
        let mut keys: Vec<(&str, Vec<String>)> = Vec::new();
        for names in &NAMES {
            let Some(parameter) = self.parameter(names.option) else { continue };
            let value = self.listed(names, &parameter.value);
            let Ok(converted) = names.convert(&value, &self.names) else { continue };
            for note in &converted.notes {
                report.parameter(Weight::Stricter, &self.section.name, parameter, note);
            }
            if self.has_own_user(names, &parameter.value) && list(&parameter.value).len() > 1 {
                let why = "only its own user reaches a home folder by its name";
                report.parameter(Weight::Stricter, &self.section.name, parameter, why);
            }
            if names.key == "allow" {
                keys.push((names.key, self.allowed()));
            } else if !(is_frozen && names.key == "write_list") {
                keys.push((names.key, converted.words));
            }
        }
        self.simplify_writers(&mut keys, report);
        keys.extend(self.hosts().unwrap_or_default().keys());
        for (key, words) in keys.iter().filter(|(_, words)| !words.is_empty()) {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            line(toml, key, &format!("[{}]", words.join(", ")));
        }
    }

    /// Removes entries without effect from the lists of readers and writers. In Samba and in Frevo,
    /// a user of both lists may write.
    fn simplify_writers(&self, keys: &mut Vec<(&str, Vec<String>)>, report: &mut Report) {
        let list = |keys: &[(&str, Vec<String>)], key| {
            keys.iter().find(|(name, _)| *name == key).map(|(_, words)| words.clone())
        };
        let writers = list(keys, "write_list").unwrap_or_default();
        if let Some((_, readers)) = keys.iter_mut().find(|(name, _)| *name == "read_list") {
            let is_writer =
                |reader: &String| writers.iter().any(|writer| writer.eq_ignore_ascii_case(reader));
            readers.retain(|reader| !is_writer(reader));
        }
        let has_readers = list(keys, "read_list").is_some_and(|readers| !readers.is_empty());
        if !self.is_read_only() && !has_readers && !writers.is_empty() {
            keys.retain(|(name, _)| *name != "write_list");
            if let Some(parameter) = self.parameter("write list") {
                let why = "everybody may write to the share";
                report.parameter(Weight::Harmless, &self.section.name, parameter, why);
            }
        }
    }

    /// True when any user may write to the share.
    pub(super) fn is_written(&self) -> bool {
        let has_writers = || self.value("write list").is_some_and(|value| !value.is_empty());
        !self.is_read_only() || (has_writers() && !self.loads("readonly"))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.loads("readonly") || self.truth("read only").unwrap_or(true)
    }

    /// How files are shown and made.
    fn write_files(&self, toml: &mut String) {
        let most = self.value("max connections").and_then(|value| value.parse::<usize>().ok());
        if let Some(most) = most.filter(|most| *most > 0) {
            line(toml, "max_connections", &most.to_string());
        }
        if self.truth("nt acl support") == Some(false) {
            line(toml, "nt_acls", "\"off\"");
        }
        for (option, key) in [
            ("store dos attributes", "dos_attributes"),
            ("hide dot files", "hide_dot_files"),
            ("level2 oplocks", "level2_oplocks"),
            ("smb3 unix extensions", "posix"),
            ("change notify", "change_notify"),
            ("kernel change notify", "host_changes"),
        ] {
            if self.truth(option) == Some(false) {
                line(toml, key, "false");
            }
        }
        if self.truth("follow symlinks").unwrap_or(true) {
            line(toml, "follow_symlinks", "true");
        }
        for (option, key) in [("hide files", "hide_files"), ("veto files", "veto")] {
            let listed = self.value(option).unwrap_or_default().split('/');
            let names: Vec<String> = listed.filter(|name| !name.is_empty()).map(quoted).collect();
            if !names.is_empty() {
                line(toml, key, &format!("[{}]", names.join(", ")));
            }
        }
    }

    /// Reports what is not taken over of the section itself.
    fn report_rest(&self, report: &mut Report) {
        let name = &self.section.name;
        for parameter in &self.section.parameters {
            let known = &*parameter.name;
            if self.section.parameter(known) != Some(parameter) {
                continue;
            }
            if let Some(row) = options::of_share(known) {
                let applies = row.applies_to(&parameter.value);
                let weight = Weight::of(row.effect).filter(|weight| match row.effect {
                    Effect::Opens => false,
                    _ => applies || *weight == Weight::Harmless,
                });
                if let Some(weight) = weight {
                    report.parameter(weight, name, parameter, row.why);
                }
            } else if options::of_global(known).is_some() {
                let why = "Samba ignores this outside of [global]";
                report.parameter(Weight::Harmless, name, parameter, why);
            } else if self.is_ignored(known) {
                let why = "the Samba of this host does not know the option either, and ignores it";
                report.parameter(Weight::LeftOut, name, parameter, why);
            } else if known.contains(':') {
                let loaded = |module: &str| self.loads(module);
                let (effect, why) = modules::option(known, &parameter.value, loaded);
                let weight = Weight::of(effect).filter(|_| effect != Effect::Opens);
                if let Some(weight) = weight {
                    report.parameter(weight, name, parameter, why);
                }
            }
        }
    }
}
