//! The rules of PAM for accounts, which smbd asks with `obey pam restrictions = yes`.

use std::fs;
use std::path::Path;

/// The folder with the rules of each service.
pub(super) const FOLDER: &str = "/etc/pam.d";
/// The service that smbd asks for.
const SERVICE: &str = "samba";
/// Files that include each other, at most.
const DEEP: usize = 8;

/// Modules that refuse accounts only for reasons that Frevo or `frevo user import` knows: the end of a
/// Unix account and its password (pam_unix), failed logons.
const KNOWN: &[&str] = &["pam_unix.so", "pam_permit.so", "pam_faillock.so", "pam_systemd_home.so"];
/// Modules that tell kinds of accounts apart, for the modules behind them.
const SORTING: &[&str] = &["pam_localuser.so", "pam_usertype.so"];
/// Modules that judge users of a domain, by rules of their own.
const OF_DOMAINS: &[&str] = &["pam_sss.so", "pam_winbind.so", "pam_krb5.so", "pam_ldap.so"];
/// The module that refuses everybody who reaches it.
const DENY: &str = "pam_deny.so";
/// Modules whose success is no rule of its own.
const PASSING: &[&str] = &["pam_unix.so", "pam_permit.so"];

/// The words of controls.
const CONTROLS: &[&str] = &["required", "requisite", "sufficient", "optional"];

/// A line about accounts.
#[derive(Debug)]
struct Line {
    /// The control, in lower case.
    control: String,
    /// The module without its folder.
    module: String,
}

/// The effect of a module's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The account is refused.
    Refuse,
    /// The next line decides.
    Go,
    /// The account is let in, unless an earlier line refused it.
    Done,
    /// So many lines are passed over.
    Jump(usize),
}

/// The rules, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Pam {
    /// The rules of the Samba server's host are not here.
    #[default]
    Unknown,
    /// They refuse nobody for a reason of their own.
    Plain,
    /// This module may refuse accounts that Frevo lets in.
    Restricting(String),
}

/// The rules in `folder`, for a server that is a member of a domain or not.
pub(super) fn rules(folder: &Path, is_member: bool) -> Pam {
    let mut lines = Vec::new();
    if read(folder, SERVICE, 0, &mut lines).is_none() {
        return Pam::Unknown;
    }
    let mut before: &[Line] = &[];
    for (at, line) in lines.iter().enumerate() {
        if !line.is_harmless(before, is_member) {
            return Pam::Restricting(line.module.clone());
        }
        before = &lines[..=at];
    }
    Pam::Plain
}

impl Line {
    /// True if the line refuses nobody for a reason of its own. The control is no excuse for a module
    /// that is not known: what it lets in, a later line may refuse others of.
    fn is_harmless(&self, before: &[Self], is_member: bool) -> bool {
        let is_in = |modules: &[&str]| modules.contains(&&*self.module);
        if self.module == DENY {
            return self.is_passed(before);
        }
        // The modules in SORTING refuse one kind of accounts. In PAM lines with `sufficient`,
        // `optional` or `default=ignore` such a refusal does not count.
        let is_sorting = is_in(SORTING) && self.action("default") != Action::Refuse;
        let is_known = is_in(KNOWN) || is_in(OF_DOMAINS) && !is_member || is_sorting;
        is_known && self.action("success") != Action::Refuse
    }

    /// True for a refusal of everybody that accounts in order do not reach.
    fn is_passed(&self, before: &[Self]) -> bool {
        let judges = |line: &Self| {
            [PASSING, OF_DOMAINS].iter().any(|modules| modules.contains(&&*line.module))
        };
        let passes = |(back, line): (usize, &Self)| {
            PASSING.contains(&&*line.module)
                && match line.action("success") {
                    Action::Done => true,
                    Action::Jump(lines) => lines > back,
                    Action::Refuse | Action::Go => false,
                }
        };
        before.iter().all(judges) && before.iter().rev().enumerate().any(passes)
    }

    /// The effect of a result such as `success`, or of all that are not named: `default`.
    fn action(&self, result: &str) -> Action {
        let is_success = result == "success";
        let Some(listed) = self.control.strip_prefix('[') else {
            return match (&*self.control, is_success) {
                ("sufficient", true) => Action::Done,
                ("sufficient" | "optional", _) | (_, true) => Action::Go,
                (_, false) => Action::Refuse,
            };
        };
        let words = || listed.trim_end_matches(']').split_whitespace();
        let of = |name: &str| {
            words().filter_map(|word| word.split_once('=')).find(|(found, _)| *found == name)
        };
        match of(result).or_else(|| of("default")).map(|(_, action)| action) {
            Some("done") => Action::Done,
            Some("ok" | "ignore" | "reset") => Action::Go,
            Some(action) => action.parse().map_or(Action::Refuse, Action::Jump),
            None => Action::Refuse,
        }
    }
}

/// Reads the lines about accounts. None when a file is missing or not understood.
fn read(folder: &Path, service: &str, depth: usize, lines: &mut Vec<Line>) -> Option<()> {
    let text = fs::read_to_string(folder.join(service)).ok()?;
    if depth > DEEP || service.contains('/') {
        return None;
    }
    for line in text.replace("\\\n", " ").lines() {
        let line = line.split('#').next().unwrap_or_default().trim().trim_start_matches('-');
        if let Some(other) = line.strip_prefix("@include") {
            read(folder, other.trim(), depth + 1, lines)?;
            continue;
        }
        let Some((kind, rest)) = line.split_once(char::is_whitespace) else { continue };
        if !kind.eq_ignore_ascii_case("account") {
            continue;
        }
        let (control, rest) = control(rest.trim_start())?;
        let control = control.to_ascii_lowercase();
        let module = rest.split_whitespace().next()?;
        match &*control {
            "include" | "substack" => read(folder, module, depth + 1, lines)?,
            known if known.starts_with('[') || CONTROLS.contains(&known) => {
                let module = module.rsplit('/').next()?.to_owned();
                lines.push(Line { control, module });
            }
            _ => return None,
        }
    }
    Some(())
}

/// Splits a line into the control, which may be `[a=b c=d]`, and the rest.
fn control(text: &str) -> Option<(&str, &str)> {
    if text.starts_with('[') {
        let end = text.find(']')?;
        return Some((&text[..=end], &text[end + 1..]));
    }
    text.split_once(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of /etc/pam.d: its name and its lines.
    type Service = (&'static str, &'static str);

    fn of(files: &[Service]) -> Pam {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(place.path().join(name), text).unwrap();
        }
        rules(place.path(), false)
    }

    /// The rules of a file of Samba's alone.
    fn of_samba(text: &str, is_member: bool) -> Pam {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(SERVICE), text).unwrap();
        rules(place.path(), is_member)
    }

    const DEBIAN: Service = (
        "common-account",
        "account\t[success=1 new_authtok_reqd=done default=ignore]\tpam_unix.so \n\
         account\trequisite\tpam_deny.so # ends it\naccount required pam_permit.so\n\
         account sufficient pam_localuser.so\n\
         account [default=bad success=ok user_unknown=ignore] pam_sss.so\n",
    );

    #[test]
    fn modules_that_refuse_accounts_are_found() {
        let samba = ("samba", "# comment\n@include common-auth\n@include common-account\n");
        let auth = ("common-auth", "auth required pam_access.so\n");
        assert_eq!(of(&[samba, auth, DEBIAN]), Pam::Plain);
        assert_eq!(of(&[samba, auth]), Pam::Unknown, "a file is missing");
        assert_eq!(of(&[auth]), Pam::Unknown);
        let redhat = ("samba", "auth required pam_nologin.so\naccount include password-auth\n");
        let password = (
            "password-auth",
            "account required pam_unix.so\naccount sufficient pam_usertype.so issystem\n\
             account required pam_permit.so\n",
        );
        assert_eq!(of(&[redhat, password]), Pam::Plain);
        for (line, module) in [
            ("account required pam_access.so", "pam_access.so"),
            ("-account\trequisite /lib/security/pam_time.so", "pam_time.so"),
            (
                "account [default=bad \\\n success=ok] pam_listfile.so file=/etc/x",
                "pam_listfile.so",
            ),
            ("account required pam_succeed_if.so user ingroup smb", "pam_succeed_if.so"),
        ] {
            let text: &'static str = Box::leak(format!("{line}\n").into_boxed_str());
            let found = of(&[("samba", text), DEBIAN]);
            assert_eq!(found, Pam::Restricting(module.to_owned()), "{line}");
        }
        assert_eq!(of(&[("samba", "@include samba\n")]), Pam::Unknown, "a circle");
        assert_eq!(of(&[("samba", "account [a=b pam_unix.so\n")]), Pam::Unknown);
    }
    /// Samba 4.17 lets in members of x only by the first of these.
    #[test]
    fn modules_count_whatever_their_control() {
        for (text, module) in [
            (
                "account sufficient pam_succeed_if.so user ingroup x\naccount required pam_deny.so\n",
                "pam_succeed_if.so",
            ),
            ("account optional pam_access.so\n", "pam_access.so"),
            ("ACCOUNT Required pam_access.so\n", "pam_access.so"),
            ("account [default=ignore] pam_listfile.so file=/x\n", "pam_listfile.so"),
            ("account required pam_localuser.so\n", "pam_localuser.so"),
            ("account [success=die default=ignore] pam_usertype.so isregular\n", "pam_usertype.so"),
            ("account required pam_deny.so\n", "pam_deny.so"),
            ("account required pam_unix.so\naccount required pam_deny.so\n", "pam_deny.so"),
            ("account sufficient pam_localuser.so\naccount required pam_deny.so\n", "pam_deny.so"),
            ("account sufficient pam_sss.so\naccount required pam_deny.so\n", "pam_deny.so"),
            (
                "account [success=1 default=ignore] pam_usertype.so isregular\n\
                 account sufficient pam_unix.so\naccount required pam_deny.so\n",
                "pam_deny.so",
            ),
            (
                "account [success=1 default=ignore] pam_unix.so\naccount required pam_permit.so\n\
                 account required pam_deny.so\n",
                "pam_deny.so",
            ),
            ("account [success=bad] pam_permit.so\n", "pam_permit.so"),
        ] {
            assert_eq!(of_samba(text, false), Pam::Restricting(module.to_owned()), "{text}");
        }
        for plain in [
            "account sufficient pam_unix.so\naccount required pam_deny.so\n",
            "account [success=2 default=ignore] pam_unix.so\n\
             account [success=1 default=ignore] pam_winbind.so\naccount requisite pam_deny.so\n",
        ] {
            assert_eq!(of_samba(plain, false), Pam::Plain, "{plain}");
        }
        assert_eq!(of_samba("account perhaps pam_unix.so\n", false), Pam::Unknown);
    }

    /// The domain's rules for a member are not known here.
    #[test]
    fn modules_of_domains_restrict_on_a_member() {
        for module in OF_DOMAINS {
            let text = format!("account [default=bad success=ok user_unknown=ignore] {module}\n");
            assert_eq!(of_samba(&text, false), Pam::Plain);
            assert_eq!(of_samba(&text, true), Pam::Restricting((*module).to_owned()));
        }
    }
}
