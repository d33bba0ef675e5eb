//! New passwords of machine accounts: a password is kept in the directory of the membership before a
//! controller has it, and until the keytab has its keys. A change that is killed anywhere can be ended, for
//! either the old password counts or the kept one.

use std::io;
use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;
use frevo_auth::kerberos::{
    ChangeAnswer, ChangeResult, EncryptionType, KdcErrorCode, Key, KeyAnswer, Keytab, KeytabEntry,
    Principal, ServiceKey,
};

use super::kdc::{self, Asking, Controller};
use super::membership::{Membership, VERSION_LEN, keytab_in, read_keytab_in};
use super::net_secrets::NetSecrets;
use super::next_keytab::replace_keys;
use super::now;
use super::status::{Check, Verdict};
use crate::exit::{Done, Exit, Failure};
use crate::secret_file;

/// The file of the password in the directory of a membership.
const KEPT: &str = "password.next";
/// Characters of a password, of 6 random bits each: as many as `adcli` takes.
const PASSWORD_LEN: usize = 120;
/// The characters of passwords: those of three kinds that rules for passwords want.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
/// Older versions of the keys that stay in the keytab, for tickets of before.
const OLD_VERSIONS: usize = 3;

/// A password that is kept until its change is at its end.
pub(super) struct KeptPassword(Zeroizing<String>);

impl KeptPassword {
    fn path(realm: &str, state_dir: &Path) -> PathBuf {
        Membership::dir(state_dir, realm).join(KEPT)
    }

    /// Chooses a password, and keeps it on the disk.
    pub(super) fn choose(member: &Membership, state_dir: &Path) -> Result<Self, Failure> {
        let mut random = Zeroizing::new([0; PASSWORD_LEN]);
        getrandom::fill(&mut *random)
            .map_err(Failure::failed("cannot get random bytes from the system"))?;
        let mut text = Zeroizing::new(String::with_capacity(PASSWORD_LEN));
        text.extend(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])));
        NetSecrets::of(&Membership::dir(state_dir, &member.realm)).forget()?;
        Self::keep(member, state_dir, &text)
    }

    /// Keeps a password on the disk.
    pub(super) fn keep(
        member: &Membership,
        state_dir: &Path,
        text: &Zeroizing<String>,
    ) -> Result<Self, Failure> {
        secret_file::replace(&Self::path(&member.realm, state_dir), text)?;
        Ok(Self(text.clone()))
    }

    /// Reads the password of a change that was interrupted. None if there is none.
    pub(super) fn read(member: &Membership, state_dir: &Path) -> Result<Option<Self>, Failure> {
        let text = secret_file::read_in(state_dir, &Self::path(&member.realm, state_dir))?;
        Ok(text.filter(|text| !text.is_empty()).map(Self))
    }

    /// Removes the password of a change that is at its end, and the copy of the secrets of `net` before it.
    pub(super) fn forget(member: &Membership, state_dir: &Path) -> Done {
        NetSecrets::of(&Membership::dir(state_dir, &member.realm)).forget()?;
        let path = Self::path(&member.realm, state_dir);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::failed(format!("cannot remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Tells of a change that is not at its end.
    pub(super) fn check(realm: &str, state_dir: &Path) -> Option<Check> {
        let is_kept = Self::path(realm, state_dir).exists();
        is_kept.then(|| Check {
            name: "password",
            verdict: Verdict::Warning,
            sentence: format!(
                "A change of the password of the machine account was interrupted, or the controller \
                 refused it; run: frevo domain renew {realm}"
            ),
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// The keys of the new password, as the controller has them.
pub(super) struct NewKeys {
    kvno: Option<u32>,
    keys: Vec<Key>,
}

/// A change of the password of a machine account.
pub(super) struct Change<'a> {
    pub(super) member: &'a Membership,
    pub(super) state_dir: &'a Path,
    pub(super) password: &'a str,
}

impl Change<'_> {
    /// Gives the password to a controller, unless one has it already.
    pub(super) fn make(&self) -> Result<NewKeys, Failure> {
        let Membership { realm, computer, .. } = self.member;
        let failed = |why: String| {
            Failure::new(
                Exit::Failed,
                format!("{realm}: cannot change the password of {computer}$: {why}"),
            )
        };
        let controllers = kdc::find(realm, self.member.controller.as_deref()).map_err(failed)?.all;
        if let Some(keys) = self.accepted(&controllers) {
            return Ok(keys);
        }
        let account = self.member.principal();
        let present = self.keytab()?.keys_of(&account);
        let mut why = String::from("no controller was found");
        for controller in &controllers {
            let answer = controller.change_password(&account, present.clone(), self.password, now);
            why = match answer {
                Ok(ChangeAnswer::Proven(ChangeResult::SUCCESS, _)) => break,
                answer => format!("{} says: {}", controller.host(), refusal(answer)),
            };
        }
        // The answer that says so may have been lost.
        self.accepted(&controllers).ok_or_else(|| failed(why))
    }

    fn keytab(&self) -> Result<Keytab, Failure> {
        Ok(read_keytab_in(self.state_dir, &keytab_in(self.state_dir))?.unwrap_or_default())
    }

    /// Returns the keys of the first controller that has the password.
    fn accepted(&self, controllers: &[Controller]) -> Option<NewKeys> {
        controllers.iter().find_map(|controller| self.keys_at(controller).ok().flatten())
    }

    /// Asks a controller for the keys of the password. None if it has another password.
    fn keys_at(&self, controller: &Controller) -> io::Result<Option<NewKeys>> {
        let (client, realm) = (self.member.principal(), &self.member.realm);
        let server = Principal::ticket_granting(realm, realm);
        let etypes = &EncryptionType::ALL;
        let asking = Asking { controller, client: &client, server: &server, etypes, keys: &[] };
        let (known, salt) = match asking.ask(None, now())? {
            KeyAnswer::Refused { etypes, salt, .. } => (etypes, salt),
            KeyAnswer::Ticket { .. } => (Vec::new(), None),
        };
        let salt = salt.unwrap_or_else(|| self.member.salt().into_bytes());
        let keys = self.keys_of(&known, &salt);
        // A key of the type that the controller names first is surely one that it has.
        let first =
            known.iter().find_map(|number| keys.iter().find(|key| key.etype().number() == *number));
        let Some(proof) = first.or(keys.first()) else { return Ok(None) };
        let own = [ServiceKey { principal: client.clone(), kvno: 0, key: proof.clone() }];
        match (Asking { keys: &own, ..asking }).ask(Some(proof), now())? {
            KeyAnswer::Ticket { client_kvno, is_proven: true, .. } => {
                Ok(Some(NewKeys { kvno: client_kvno, keys }))
            }
            KeyAnswer::Refused { code: KdcErrorCode::PRE_AUTHENTICATION_FAILED, .. } => Ok(None),
            _ => Err(io::Error::other("the controller does not tell whether it has the password")),
        }
    }

    /// Makes the keys of the password: of AES, of the types that the controller names, and of RC4 where
    /// the keytab has such keys.
    fn keys_of(&self, known: &[i32], salt: &[u8]) -> Vec<Key> {
        let present = self.keytab().unwrap_or_default().keys_of(&self.member.principal());
        let of_keytab = |etype: &EncryptionType| present.iter().any(|key| key.etype() == *etype);
        let is_made = |etype: &EncryptionType| match etype {
            EncryptionType::Aes256Sha1 | EncryptionType::Aes128Sha1 => true,
            EncryptionType::Rc4Hmac => of_keytab(etype),
            _ => known.contains(&etype.number()),
        };
        let etypes = EncryptionType::ALL.into_iter().filter(is_made);
        etypes.filter_map(|etype| Key::from_password(etype, self.password, salt, None)).collect()
    }

    /// Puts the keys into the keytab, for each name that it has of the realm, beside older versions.
    pub(super) fn write(&self, new: &NewKeys) -> Done {
        let realm = &self.member.realm;
        let mut entries = self.keytab()?.entries;
        entries.retain(|entry| entry.key.principal.realm == *realm);
        let keytab = next_entries(entries, &[self.member.principal(), self.member.service()], new);
        replace_keys(self.state_dir, realm, &keytab)
    }
}

/// The bytes of a keytab with new keys beside older ones. `least` are names that have keys in any case.
fn next_entries(
    mut entries: Vec<KeytabEntry>,
    least: &[Principal],
    new: &NewKeys,
) -> Zeroizing<Vec<u8>> {
    let newest = entries.iter().map(|entry| entry.key.kvno).max().unwrap_or(0);
    let kvno = new.kvno.unwrap_or_else(|| newest.saturating_add(1));
    let mut names: Vec<Principal> = Vec::new();
    for name in entries.iter().map(|entry| &entry.key.principal).chain(least) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut versions: Vec<u32> = entries.iter().map(|entry| entry.key.kvno).collect();
    versions.sort_unstable_by_key(|version| std::cmp::Reverse(*version));
    versions.dedup();
    versions.retain(|version| *version != kvno);
    versions.truncate(OLD_VERSIONS);
    entries.retain(|entry| versions.contains(&entry.key.kvno));
    let written = now();
    for principal in &names {
        entries.extend(new.keys.iter().map(|key| KeytabEntry {
            key: ServiceKey { principal: principal.clone(), kvno, key: key.clone() },
            written,
        }));
    }
    encoded(&entries)
}

/// The bytes of a keytab with these entries.
pub(super) fn encoded(entries: &[KeytabEntry]) -> Zeroizing<Vec<u8>> {
    let records: Vec<_> = entries.iter().filter_map(KeytabEntry::encode).collect();
    // The buffer has its final size at once, because growing it would leave copies of the keys.
    let len = records.iter().map(|record| record.len()).sum::<usize>();
    let mut bytes = Zeroizing::new(Vec::with_capacity(VERSION_LEN + len));
    bytes.extend([5, 2]);
    records.iter().for_each(|record| bytes.extend_from_slice(record));
    bytes
}

/// The reason why a controller has not changed the password.
fn refusal(answer: io::Result<ChangeAnswer>) -> String {
    match answer {
        Ok(ChangeAnswer::Proven(_, text)) if !text.is_empty() => text,
        Ok(ChangeAnswer::Proven(ChangeResult::SOFT_ERROR, _)) => {
            String::from("the rules of the domain for passwords forbid it")
        }
        Ok(ChangeAnswer::Proven(ChangeResult::ACCESS_DENIED, _)) => {
            String::from("the account may not change its own password")
        }
        Ok(ChangeAnswer::Proven(result, _)) => format!("result {}", result.0),
        Ok(ChangeAnswer::Refused(code)) => format!("error {}", code.0),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::arguments::Tool;
    use super::*;

    fn member() -> Membership {
        Membership {
            realm: "A.TEST".into(),
            domain: "A".into(),
            computer: "FILES".into(),
            host: "files.a.test".into(),
            controller: None,
            ou: None,
            tool: Tool::Adcli,
            cluster: None,
            names: Vec::new(),
        }
    }

    #[test]
    fn a_password_is_kept_until_its_change_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, member) = (folder.path(), member());
        member.write(dir).unwrap();
        assert!(KeptPassword::read(&member, dir).unwrap().is_none());
        assert!(KeptPassword::check("A.TEST", dir).is_none());
        let chosen = KeptPassword::choose(&member, dir).unwrap();
        assert_eq!(chosen.text().len(), PASSWORD_LEN);
        for kind in [char::is_uppercase, char::is_lowercase] as [fn(char) -> bool; 2] {
            assert!(chosen.text().contains(kind));
        }
        let file = Membership::dir(dir, "A.TEST").join(KEPT);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let kept = KeptPassword::read(&member, dir).unwrap().unwrap();
        assert_eq!(kept.text(), chosen.text());
        let check = KeptPassword::check("A.TEST", dir).unwrap();
        assert!(check.sentence.contains("run: frevo domain renew A.TEST"), "{}", check.sentence);
        let other = KeptPassword::choose(&member, dir).unwrap();
        assert_ne!(other.text(), chosen.text());
        KeptPassword::forget(&member, dir).unwrap();
        KeptPassword::forget(&member, dir).unwrap();
        assert!(!file.exists());
    }

    fn entry(name: &str, kvno: u32) -> KeytabEntry {
        let key = Key::filled(EncryptionType::Aes128Sha1, kvno as u8);
        let principal = Principal::user(name, "A.TEST");
        KeytabEntry { key: ServiceKey { principal, kvno, key }, written: now() }
    }

    fn shown(bytes: &[u8]) -> Vec<String> {
        let entries = Keytab::parse(bytes).unwrap().entries;
        entries.iter().map(|entry| format!("{:?}", entry.key)).collect()
    }

    #[test]
    fn new_keys_are_written_for_every_name_beside_three_older_versions() {
        let old = [entry("FILES$", 1), entry("FILES$", 2), entry("host", 2), entry("FILES$", 3)];
        let old: Vec<_> = old.into_iter().chain([entry("FILES$", 4), entry("FILES$", 5)]).collect();
        let keys = vec![Key::filled(EncryptionType::Aes256Sha1, 9)];
        let least = [Principal::service("cifs", "files.a.test", "A.TEST")];
        let by_number = NewKeys { kvno: Some(5), keys: keys.clone() };
        let expected = [
            "FILES$@A.TEST kvno 2 aes128-cts-hmac-sha1-96",
            "host@A.TEST kvno 2 aes128-cts-hmac-sha1-96",
            "FILES$@A.TEST kvno 3 aes128-cts-hmac-sha1-96",
            "FILES$@A.TEST kvno 4 aes128-cts-hmac-sha1-96",
            "FILES$@A.TEST kvno 5 aes256-cts-hmac-sha1-96",
            "host@A.TEST kvno 5 aes256-cts-hmac-sha1-96",
            "cifs/files.a.test@A.TEST kvno 5 aes256-cts-hmac-sha1-96",
        ];
        // A second run, after a kill, changes nothing.
        let once = next_entries(old, &least, &by_number);
        assert_eq!(shown(&once), expected);
        let again = next_entries(Keytab::parse(&once).unwrap().entries, &least, &by_number);
        assert_eq!(shown(&again), expected);
        let next = NewKeys { kvno: None, keys };
        let next = shown(&next_entries(Keytab::parse(&once).unwrap().entries, &least, &next));
        assert_eq!(
            (next.len(), next.iter().filter(|name| name.contains("kvno 6")).count()),
            (8, 3)
        );
    }

    #[test]
    fn keys_are_those_of_the_password_and_the_account() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, member) = (folder.path(), member());
        let change = Change { member: &member, state_dir: dir, password: "MachinePassw0rd" };
        let types = |known: &[i32]| -> Vec<&str> {
            change.keys_of(known, b"salt").iter().map(|key| key.etype().name()).collect()
        };
        assert_eq!(types(&[]), ["aes256-cts-hmac-sha1-96", "aes128-cts-hmac-sha1-96"]);
        assert!(types(&[18, 17, 23, 20]).contains(&"aes256-cts-hmac-sha384-192"));
        assert!(!types(&[18, 17, 23]).contains(&"rc4-hmac"));
        let rc4 = Key::filled(EncryptionType::Rc4Hmac, 1);
        let principal = member.principal();
        let entry =
            KeytabEntry { key: ServiceKey { principal, kvno: 1, key: rc4 }, written: now() };
        let keytab = [&[5, 2][..], &entry.encode().unwrap()].concat();
        member.write(dir).unwrap();
        replace_keys(dir, "A.TEST", &keytab).unwrap();
        assert!(types(&[]).contains(&"rc4-hmac"));
    }

    #[test]
    fn refusals_are_sentences() {
        for (answer, text) in [
            (Ok(ChangeAnswer::Proven(ChangeResult::SOFT_ERROR, "too young".into())), "too young"),
            (
                Ok(ChangeAnswer::Proven(ChangeResult::SOFT_ERROR, String::new())),
                "the rules of the domain for passwords forbid it",
            ),
            (
                Ok(ChangeAnswer::Proven(ChangeResult::ACCESS_DENIED, String::new())),
                "the account may not change its own password",
            ),
            (Ok(ChangeAnswer::Proven(ChangeResult::HARD_ERROR, String::new())), "result 2"),
            (Ok(ChangeAnswer::Refused(KdcErrorCode::SKEW)), "error 37"),
            (Err(io::Error::other("late")), "late"),
        ] {
            assert_eq!(refusal(answer), text);
        }
    }
}
