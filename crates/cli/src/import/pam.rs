//! The rules of PAM for accounts, which smbd asks with `obey pam restrictions = yes`.

use std::fs;
use std::path::Path;

/// The folder with the rules of each service.
pub(super) const FOLDER: &str = "/etc/pam.d";
/// The service that smbd asks for.
const SERVICE: &str = "samba";
/// Files that include each other, at most.
const DEEP: usize = 8;

/// Modules that refuse no account, or for reasons that Frevo or `frevo user import` knows: the
/// end of a Unix account and its password (pam_unix), users of a domain (pam_sss, pam_winbind and
/// their like), failed logons. pam_deny ends a stack that another module has judged.
const KNOWN: &[&str] = &[
    "pam_unix.so",
    "pam_permit.so",
    "pam_deny.so",
    "pam_localuser.so",
    "pam_usertype.so",
    "pam_faillock.so",
    "pam_sss.so",
    "pam_winbind.so",
    "pam_krb5.so",
    "pam_ldap.so",
    "pam_systemd_home.so",
];

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

/// The rules in `folder`.
pub(super) fn rules(folder: &Path) -> Pam {
    let mut modules = Vec::new();
    if read(folder, SERVICE, 0, &mut modules).is_none() {
        return Pam::Unknown;
    }
    let known = |module: &String| KNOWN.contains(&&**module);
    match modules.into_iter().find(|module| !known(module)) {
        Some(module) => Pam::Restricting(module),
        None => Pam::Plain,
    }
}

/// Reads the modules of accounts that may refuse one. None when a file is missing or not
/// understood.
fn read(folder: &Path, service: &str, depth: usize, modules: &mut Vec<String>) -> Option<()> {
    let text = fs::read_to_string(folder.join(service)).ok()?;
    if depth > DEEP || service.contains('/') {
        return None;
    }
    for line in text.replace("\\\n", " ").lines() {
        let line = line.split('#').next().unwrap_or_default().trim().trim_start_matches('-');
        if let Some(other) = line.strip_prefix("@include") {
            read(folder, other.trim(), depth + 1, modules)?;
            continue;
        }
        let Some(rest) = line.strip_prefix("account").filter(|rest| rest.starts_with([' ', '\t']))
        else {
            continue;
        };
        let (control, rest) = control(rest.trim_start())?;
        let module = rest.split_whitespace().next()?;
        match control {
            "include" | "substack" => read(folder, module, depth + 1, modules)?,
            // Their refusal has no effect.
            "sufficient" | "optional" => {}
            _ => modules.push(module.rsplit('/').next()?.to_owned()),
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
        rules(place.path())
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
        assert_eq!(of(&[("samba", "account optional pam_access.so\n")]), Pam::Plain);
        assert_eq!(of(&[("samba", "@include samba\n")]), Pam::Unknown, "a circle");
        assert_eq!(of(&[("samba", "account [a=b pam_unix.so\n")]), Pam::Unknown);
    }
}
