//! Converts smb.conf's lists of users to those of a share.
//!
//! No name loses its domain. On a member of a domain Samba takes a name without one for an account of
//! its own, else for one of the domain, else for one of the host; Frevo's names say which.

use frevo_config::Who;
use frevo_wire::dtyp::Sid;

use super::names::{NameRules, Owner};
use super::words::list;

/// A list of users: the key of `[[share]]`, what Samba calls it, and true for a list that gives
/// rights.
pub(super) struct Names {
    pub(super) key: &'static str,
    pub(super) option: &'static str,
    pub(super) gives: bool,
}

/// The lists of users.
pub(super) const NAMES: [Names; 4] = [
    Names { key: "allow", option: "valid users", gives: true },
    Names { key: "deny", option: "invalid users", gives: false },
    Names { key: "read_list", option: "read list", gives: false },
    Names { key: "write_list", option: "write list", gives: true },
];

/// A converted list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Converted {
    pub(super) words: Vec<String>,
    /// Remarks on single names, for the report.
    pub(super) notes: Vec<String>,
}

impl Converted {
    fn push(&mut self, mark: &str, name: &str) -> Result<(), String> {
        let who = format!("{mark}{name}").parse::<Who>()?.as_str().to_owned();
        if !self.words.iter().any(|known| known.eq_ignore_ascii_case(&who)) {
            self.words.push(who);
        }
        Ok(())
    }
}

impl Names {
    /// Converts a list.
    ///
    /// # Errors
    /// The reason why a word has no equal.
    pub(super) fn convert(&self, value: &str, rules: &NameRules) -> Result<Converted, String> {
        let mut converted = Converted::default();
        for word in list(value) {
            self.add(&word, rules, &mut converted).map_err(|why| format!("{word}: {why}"))?;
        }
        Ok(converted)
    }

    /// Adds a user, or a group of the host, of an account file or of a domain.
    fn add(&self, word: &str, rules: &NameRules, to: &mut Converted) -> Result<(), String> {
        let plain = self.without_variables(word, rules)?;
        // In Samba `+` marks a group of the host, `&` a netgroup of NIS, and `@` a name that may be
        // either.
        let bare = plain.trim_start_matches(['@', '+', '&']);
        let marks = plain.strip_suffix(bare).unwrap_or_default();
        if !marks.is_empty() && !marks.contains(['@', '+']) {
            return Err(String::from("netgroups of NIS are not supported"));
        }
        let (domain, own) = rules.split(bare);
        if domain.is_empty() && own.to_ascii_uppercase().starts_with("S-1-") {
            let sid: Sid = own.parse().map_err(|_| String::from("it is not a SID"))?;
            return to.push("@", &sid.to_string());
        }
        let is_group = !marks.is_empty() || domain.eq_ignore_ascii_case("unix group");
        let mark = if is_group { "@" } else { "" };
        if domain.eq_ignore_ascii_case("builtin") {
            if !own.eq_ignore_ascii_case("administrators") {
                return Err(String::from("of Samba's own groups Frevo has Administrators only"));
            }
            return to.push("@", &Sid::ADMINISTRATORS.to_string());
        }
        if domain.is_empty() {
            return self.add_bare(mark, own, rules, to);
        }
        match rules.owner_of(domain) {
            Owner::Server => to.push(mark, own),
            Owner::Domain => {
                if !self.gives && rules.may_be_own(domain) {
                    self.add_possible(mark, own, word, domain, to)?;
                }
                to.push(mark, &format!("{domain}\\{own}"))
            }
            // If the domain were left out, a local user of the same name would get the rights.
            Owner::Nobody if self.gives => Err(format!(
                "this server is no member of the domain {domain}, and its own name is not {domain} \
                 (netbios name)"
            )),
            Owner::Nobody => self.add_possible(mark, own, word, domain, to),
        }
    }

    /// Adds a name of this server to a list that takes rights away, because the domain that stands
    /// before it may be a name of the server.
    fn add_possible(
        &self,
        mark: &str,
        name: &str,
        word: &str,
        domain: &str,
        to: &mut Converted,
    ) -> Result<(), String> {
        to.notes.push(format!(
            "{word} is taken for '{mark}{name}', since {domain} may be a name of the Samba server; if \
             it is not, take {mark}{name} out of {}",
            self.key
        ));
        to.push(mark, name)
    }

    /// Adds a name without a domain.
    fn add_bare(
        &self,
        mark: &str,
        name: &str,
        rules: &NameRules,
        to: &mut Converted,
    ) -> Result<(), String> {
        // root is always a local user, because no domain has one, and the server would refuse the
        // domain's users if a list has a name that cannot be resolved.
        if !rules.is_member() || name == "root" {
            return to.push(mark, name);
        }
        let of_domain = format!("{}\\{name}", rules.workgroup);
        if self.gives {
            to.notes.push(format!(
                "{mark}{name} is taken for '{mark}{of_domain}'; if an account or group of this host is \
                 meant, write {mark}{name}"
            ));
        } else {
            to.push(mark, name)?;
        }
        to.push(mark, &of_domain)
    }

    /// The word with the domain and its separator in the place of `%D` and `%w`.
    fn without_variables(&self, word: &str, rules: &NameRules) -> Result<String, String> {
        let mut word = word.replace("%w", "\\");
        // `%D` is the domain of the user who connects. A list that takes rights away must also
        // catch users of other domains, so `%D` is not replaced there.
        if rules.is_member() && self.gives {
            word = word.replace("%D", &rules.workgroup);
        }
        if word.contains('%') {
            return Err(String::from("% substitutions are not supported"));
        }
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::super::smb_conf::SmbConf;
    use super::*;

    fn one(global: &str, option: &str, word: &str) -> Result<Vec<String>, String> {
        on_host(None, global, option, word)
    }

    fn on_host(
        host: Option<&str>,
        global: &str,
        option: &str,
        word: &str,
    ) -> Result<Vec<String>, String> {
        let names = NAMES.iter().find(|names| names.option == option).unwrap();
        let conf = SmbConf::parse(&format!("[global]\n{global}\n")).unwrap();
        let rules = NameRules::of(conf.global().unwrap(), host);
        names.convert(word, &rules).map(|converted| converted.words)
    }

    /// A word of a list, and what becomes of it.
    type Case = (&'static str, &'static [&'static str]);

    #[test]
    fn names_as_samba_writes_them() {
        let standalone = "netbios name = BOX\nworkgroup = LAB";
        let cases: [Case; 9] = [
            ("ann", &["ann"]),
            ("BOX\\ann", &["ann"]),
            ("@staff", &["@staff"]),
            ("+staff", &["@staff"]),
            ("&+staff", &["@staff"]),
            ("+&box\\it", &["@it"]),
            ("Unix Group\\it", &["@it"]),
            ("S-1-5-21-1-2-3-1000", &["@S-1-5-21-1-2-3-1000"]),
            ("BUILTIN\\Administrators", &["@S-1-5-32-544"]),
        ];
        for (word, who) in cases {
            for list in ["valid users", "invalid users"] {
                let found = one(standalone, list, &format!("\"{word}\"")).unwrap();
                assert_eq!(found, who, "{list} = {word}");
            }
        }
        assert_eq!(one(standalone, "valid users", "a,b c").unwrap(), ["a", "b", "c"]);
        // None of these words can be converted. In smbd 4.17 a name with the server's workgroup
        // (LAB) matches no user.
        for bad in ["%S", "%D\\ann", "@", "&staff", "OTHER\\ann", "LAB\\ann", "S-1-x", "a/b"] {
            for list in ["valid users", "write list"] {
                assert!(one(standalone, list, bad).is_err(), "{list} = {bad}");
            }
        }
        for list in ["invalid users", "read list"] {
            // In a list that takes rights away these entries are kept without their domain, because
            // users of another domain cannot log on, but OTHER or LAB may be the server's own name.
            assert_eq!(one(standalone, list, "OTHER\\ann @LAB\\it").unwrap(), ["ann", "@it"]);
            for bad in ["&staff", "%U", "%D\\ann", "S-1-x"] {
                assert!(one(standalone, list, bad).is_err(), "{list} = {bad}");
            }
        }
    }

    /// smb.conf mostly has no name of the server, which is then that of the host.
    #[test]
    fn the_name_of_the_host_is_the_servers() {
        let standalone = "workgroup = LAB\nnetbios aliases = OLD old2";
        for list in ["invalid users", "read list"] {
            for host in [None, Some("files.example.com"), Some("other")] {
                let words = on_host(host, standalone, list, "FILES\\ann @OLD2\\staff").unwrap();
                assert_eq!(words, ["ann", "@staff"], "{list} on {host:?}");
            }
        }
        let given = |host, word: &str| on_host(host, standalone, "valid users", word);
        assert_eq!(given(Some("files.example.com"), "Files\\ann").unwrap(), ["ann"]);
        assert_eq!(
            given(Some("a-very-long-name-of-a-host"), "a-very-long-nam\\ann").unwrap(),
            ["ann"]
        );
        for host in [None, Some("other")] {
            assert!(given(host, "FILES\\ann").is_err(), "{host:?}");
        }
        // `netbios name` in smb.conf replaces the host's name, so FILES is not the server's name
        // here.
        let named = on_host(Some("files"), "netbios name = BOX", "valid users", "FILES\\ann");
        assert!(named.is_err());
        // The server is a member of a domain. If its own name is unknown (None), `FILES\ann` stays
        // as it is; if its name is FILES, ann is a local user.
        let member = "workgroup = SAMDOM\nsecurity = ads";
        let taken =
            |host| on_host(host, member, "invalid users", "FILES\\ann SAMDOM\\bob").unwrap();
        assert_eq!(taken(None), ["ann", "FILES\\ann", "SAMDOM\\bob"]);
        assert_eq!(taken(Some("files")), ["ann", "SAMDOM\\bob"]);
    }

    #[test]
    fn names_of_a_member_keep_their_domains() {
        let member = "netbios name = FILES\nworkgroup = SAMDOM\nsecurity = ads\n\
                      realm = SAMDOM.EXAMPLE.COM\nwinbind use default domain = yes";
        let cases: [Case; 13] = [
            ("SAMDOM\\ann", &["SAMDOM\\ann"]),
            ("@\"SAMDOM\\Domain Users\"", &["@SAMDOM\\Domain Users"]),
            ("\"@SAMDOM\\staff\"", &["@SAMDOM\\staff"]),
            ("+SAMDOM\\staff", &["@SAMDOM\\staff"]),
            ("&+SAMDOM\\staff", &["@SAMDOM\\staff"]),
            ("TRUSTED\\ann", &["TRUSTED\\ann"]),
            ("samdom.example.com\\ann", &["samdom.example.com\\ann"]),
            ("@\"domain users\"", &["@SAMDOM\\domain users"]),
            ("ann", &["SAMDOM\\ann"]),
            ("%D%wann @%D\\staff", &["SAMDOM\\ann", "@SAMDOM\\staff"]),
            ("FILES\\ann", &["ann"]),
            ("\"Unix Group\\it\" root", &["@it", "root"]),
            ("ann SAMDOM\\Ann", &["SAMDOM\\ann"]),
        ];
        for (word, who) in cases {
            for list in ["valid users", "write list"] {
                assert_eq!(one(member, list, word).unwrap(), who, "{list} = {word}");
            }
        }
        let taken: [Case; 4] = [
            ("ann", &["ann", "SAMDOM\\ann"]),
            ("@staff", &["@staff", "@SAMDOM\\staff"]),
            ("SAMDOM\\ann", &["SAMDOM\\ann"]),
            ("root", &["root"]),
        ];
        for (word, who) in taken {
            for list in ["invalid users", "read list"] {
                assert_eq!(one(member, list, word).unwrap(), who, "{list} = {word}");
                assert!(one(member, list, "%D\\ann").is_err(), "those of other domains");
            }
        }
        let plus = format!("{member}\nwinbind separator = +");
        for (word, who) in [("SAMDOM+ann", "SAMDOM\\ann"), ("+SAMDOM+it", "@SAMDOM\\it")] {
            assert_eq!(one(&plus, "valid users", word).unwrap(), [who]);
        }
        // On a domain controller the accounts of the domain are the server's own, so their names
        // lose the domain.
        let controller = "workgroup = SAMDOM\ndomain logons = yes";
        assert_eq!(one(controller, "valid users", "SAMDOM\\ann").unwrap(), ["ann"]);
        assert!(one(controller, "valid users", "OTHER\\ann").is_err());
    }
}
