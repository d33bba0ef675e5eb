//! Converts smb.conf's lists of users to those of a share.

use frevo_server::config::Who;

use super::words::list;

/// A list of users: the key of `[[share]]`, what Samba calls it, and true for a list that gives
/// rights.
pub(super) struct Names {
    pub(super) key: &'static str,
    pub(super) option: &'static str,
    gives: bool,
}

/// The lists of users.
pub(super) const NAMES: [Names; 4] = [
    Names { key: "allow", option: "valid users", gives: true },
    Names { key: "deny", option: "invalid users", gives: false },
    Names { key: "read_list", option: "read list", gives: false },
    Names { key: "write_list", option: "write list", gives: true },
];

impl Names {
    /// Converts a list. `domains` are those that the server's own accounts are in.
    ///
    /// # Errors
    /// The reason why a word has no equal.
    pub(super) fn convert(&self, value: &str, domains: &[String]) -> Result<Vec<String>, String> {
        list(value).iter().map(|word| self.name(word, domains)).collect()
    }

    /// A user, or a group of the host or of an account file.
    fn name(&self, word: &str, domains: &[String]) -> Result<String, String> {
        let fail = |why: &str| Err(format!("{word}: {why}"));
        if word.contains('%') {
            return fail("% substitutions are not supported");
        }
        // `+` is a group of the host's, `&` one of NIS; `@` both.
        let bare = word.trim_start_matches(['@', '+', '&']);
        let marks = word.strip_suffix(bare).unwrap_or_default();
        if !marks.is_empty() && !marks.contains(['@', '+']) {
            return fail("netgroups of NIS are not supported");
        }
        let (domain, own) = bare.rsplit_once(['\\', '/']).unwrap_or(("", bare));
        let domain = domain.to_ascii_lowercase();
        let is_group = !marks.is_empty() || domain == "unix group";
        let is_own =
            matches!(&*domain, "" | "unix group" | "unix user") || domains.contains(&domain);
        // A local user of the same name would get the rights of a stranger.
        if self.gives && !is_own {
            return fail("users of other domains are not supported");
        }
        if self.gives && own.to_ascii_uppercase().starts_with("S-1-") {
            return fail("a SID is not a name");
        }
        let mark = if is_group { "@" } else { "" };
        let who = format!("{mark}{own}").parse::<Who>()?;
        Ok(who.as_str().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(option: &str, word: &str) -> Result<Vec<String>, String> {
        let names = NAMES.iter().find(|names| names.option == option).unwrap();
        names.convert(word, &[String::from("dom")])
    }

    #[test]
    fn names_as_samba_writes_them() {
        for (word, who) in [
            ("ann", "ann"),
            ("DOM\\ann", "ann"),
            ("@staff", "@staff"),
            ("+staff", "@staff"),
            ("&+staff", "@staff"),
            ("+&DOM\\it", "@it"),
            ("Unix Group\\it", "@it"),
        ] {
            assert_eq!(
                one("valid users", &format!("\"{word}\"")),
                Ok(vec![who.to_owned()]),
                "{word}"
            );
        }
        assert_eq!(one("valid users", "a,b c").unwrap(), ["a", "b", "c"]);
        for bad in ["%S", "@", "&staff", "OTHER\\ann", "S-1-5-21-1-2-3-1000"] {
            assert!(one("valid users", bad).is_err() && one("write list", bad).is_err(), "{bad}");
        }
        // A list that takes rights away may name more users than Samba's.
        assert_eq!(one("invalid users", "OTHER\\ann").unwrap(), ["ann"]);
        assert!(one("invalid users", "&staff").is_err() && one("read list", "%U").is_err());
    }
}
