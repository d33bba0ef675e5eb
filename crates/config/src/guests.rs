//! The keys of shares that clients may use without an account.

use std::ops::Range;

use toml::Spanned;

use super::fault::Fault;
use super::names::ShareName;
use super::values::{EncryptionChoice, UnknownUsersChoice};

/// The keys of a share that guests depend on.
pub(super) struct GuestKeys<'a> {
    /// The place of the share's name.
    pub(super) at: Range<usize>,
    pub(super) guest: Option<&'a Spanned<String>>,
    pub(super) writes: bool,
    pub(super) read_only: bool,
    /// A key of the share that cannot stand beside `guest`.
    pub(super) against: Option<&'static str>,
}

impl GuestKeys<'_> {
    /// The fault of the keys.
    pub(super) fn fault(&self, text: &str) -> Option<Fault> {
        let Some(guest) = self.guest else {
            let what = "guest_write needs guest: the user of the host as which guests use files";
            return self.writes.then(|| Fault::at(text, &self.at, what));
        };
        if let Some(key) = self.against {
            let what = format!("guest and {key} cannot be used together");
            let hint = "let guests into a share of its own, without rules for users and without a \
                        demand of encryption";
            return Some(Fault::at(text, &guest.span(), what).hint(hint));
        }
        let why = match guest.get_ref().as_str() {
            "" => "guest must name a user of the host, such as \"nobody\"",
            "root" => "guest must not be root",
            _ if self.writes && self.read_only => {
                "guest_write has no effect, because read_only is true; remove one of the two keys"
            }
            _ => return None,
        };
        Some(Fault::at(text, &guest.span(), why))
    }
}

/// The fault of a demand of encryption, which guests cannot meet, or of guests that no share lets in. `open`
/// is a share that lets guests in.
pub(super) fn fault_of_server(
    open: Option<&ShareName>,
    encryption: Option<EncryptionChoice>,
    unknown_users: Option<UnknownUsersChoice>,
) -> Option<Fault> {
    match open {
        Some(name) if encryption.is_none_or(|choice| choice == EncryptionChoice::Required) => {
            let what = format!(
                "share {name} has guest, but the server demands encryption, and guests have no key"
            );
            let hint = "set encryption = \"offered\" in [server], and encrypt = true in each share that \
                        is not for guests";
            Some(Fault::new(what).hint(hint))
        }
        None if unknown_users == Some(UnknownUsersChoice::Guest) => {
            let what = "unknown_users = \"guest\" has no effect, because no share has guest";
            Some(Fault::new(what.to_owned()).hint("remove the key"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn faults(server: &str, share: &str) -> Vec<String> {
        let text = format!("[server]\n{server}\n[[share]]\nname = \"a\"\npath = \"/a\"\n{share}\n");
        let faults = Config::parse(&text).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn guests_need_a_share_without_rules_and_without_a_demand_of_encryption() {
        const OFFERED: &str = "encryption = \"offered\"";
        const GUEST: &str = "guest = \"nobody\"\n";
        let with = |key: &str| faults(OFFERED, &format!("{GUEST}{key}"));
        for key in [
            "",
            "guest_write = true",
            "read_only = true",
            "hosts_allow = [\"10.0.0.0/8\"]",
            "run_as = \"user\"",
        ] {
            assert_eq!(with(key), [] as [&str; 0], "{key}");
        }
        for (key, what) in [
            ("encrypt = true", "guest and encrypt"),
            ("allow = [\"ann\"]", "guest and allow"),
            ("deny = [\"ann\"]", "guest and deny"),
            ("read_list = [\"ann\"]", "guest and read_list"),
            ("read_only = true\nwrite_list = [\"ann\"]", "guest and write_list"),
            ("access_list = [\"allow:S-1-1-0:read\"]", "guest and access_list"),
            ("time_machine = true", "guest and time_machine"),
            ("guest_write = true\nread_only = true", "guest_write has no effect"),
        ] {
            let found = with(key);
            assert!(found.len() == 1 && found[0].contains(what), "{key}: {found:?}");
        }
        for guest in ["guest = \"\"", "guest = \"root\""] {
            assert!(faults(OFFERED, guest)[0].contains("guest must"), "{guest}");
        }
        assert!(faults(OFFERED, "guest_write = true")[0].contains("needs guest"));
        assert!(faults("", GUEST)[0].contains("demands encryption"));
        assert!(faults("encryption = \"required\"", GUEST)[0].contains("demands encryption"));
        assert_eq!(
            faults("encryption = \"off\"\nunknown_users = \"guest\"", GUEST),
            [] as [&str; 0]
        );
        assert!(faults("unknown_users = \"guest\"", "")[0].contains("no effect"));
        assert_eq!(faults("unknown_users = \"refuse\"", ""), [] as [&str; 0]);
    }
}
