//! The next keytab of a membership: a copy of its keys that a program changes. It takes their place in
//! the keytab when it is whole. A server never reads half of a change, and a change that is killed
//! leaves the old keys; the new ones may be in the copy.

use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;
use frevo_auth::kerberos::{Keytab, KeytabEntry};

use super::membership::{Membership, Parts, VERSION_LEN, keytab_in};
use super::new_password::encoded;
use crate::exit::{Done, Failure};
use crate::secret_file::{self, Owner};
use crate::state;

/// The copy in the directory of a membership.
const NEXT: &str = "keytab.next";

/// The copy of one membership.
#[derive(Debug)]
pub(super) struct NextKeytab<'a> {
    member: &'a Membership,
    state_dir: &'a Path,
    path: PathBuf,
}

impl<'a> NextKeytab<'a> {
    /// Returns the copy that an earlier change may have left.
    pub(super) fn left(member: &'a Membership, state_dir: &'a Path) -> Self {
        let path = Membership::dir(state_dir, &member.realm).join(NEXT);
        Self { member, state_dir, path }
    }

    /// Begins a change: copies the keys of the membership.
    pub(super) fn begin(member: &'a Membership, state_dir: &'a Path) -> Result<Self, Failure> {
        let next = Self::left(member, state_dir);
        match secret_file::read_bytes_in(state_dir, &keytab_in(state_dir))? {
            Some(bytes) => {
                secret_file::replace_bytes(&next.path, &Parts::of(&bytes, &member.realm).ours)?
            }
            None => next.remove()?,
        }
        Ok(next)
    }

    /// The path, for the program that makes the change.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the keys for names of nodes from the copy. They are those of the account, so that a ticket for any
    /// name opens without them, and a large cluster has more of them than a keytab may have.
    pub(super) fn drop_names(&self) -> Done {
        let bytes = secret_file::read_bytes_in(self.state_dir, &self.path)?.unwrap_or_default();
        let Ok(Keytab { mut entries, .. }) = Keytab::parse(&bytes) else { return Ok(()) };
        let is_named = |entry: &KeytabEntry| {
            let host = entry.key.principal.components.last().map(|host| host.to_lowercase());
            host.is_some_and(|host| self.member.names.contains(&host))
        };
        entries.retain(|entry| !is_named(entry));
        secret_file::replace_bytes(&self.path, &encoded(&entries))
    }

    /// Puts the keys of the copy into the keytab in one step, and gives it to the user of the server, to
    /// whom the state directory belongs.
    pub(super) fn finish(self) -> Done {
        let next = secret_file::read_bytes_in(self.state_dir, &self.path)?.unwrap_or_default();
        replace_keys(
            self.state_dir,
            &self.member.realm,
            &Parts::of(&next, &self.member.realm).ours,
        )?;
        self.remove()
    }

    fn remove(&self) -> Done {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::failed(format!("cannot remove {}", self.path.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// Puts `keys`, the bytes of a keytab, in the place of all keys of a realm in the keytab, in one step. The
/// keytab belongs to the owner of the state directory.
pub(super) fn replace_keys(state_dir: &Path, realm: &str, keys: &[u8]) -> Done {
    let keytab = keytab_in(state_dir);
    let failed = |error| Failure::failed(format!("cannot write {}", keytab.display()))(error);
    let others = match secret_file::read_bytes_in(state_dir, &keytab)? {
        Some(bytes) => Parts::of(&bytes, realm).others,
        None => Default::default(),
    };
    let from = if others.len() < VERSION_LEN { 0 } else { VERSION_LEN };
    let keys = keys.get(from..).unwrap_or_default();
    // The buffer has its final size at once, because growing it would leave copies of the keys.
    let mut all = Zeroizing::new(Vec::with_capacity(others.len() + keys.len()));
    all.extend_from_slice(&others);
    all.extend_from_slice(keys);
    let owner = std::fs::metadata(state_dir).map_err(failed)?;
    let owner = Owner::of(&owner);
    if let Some(dir) = keytab.parent() {
        state::make_dir(dir)?;
        std::os::unix::fs::chown(dir, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
    }
    secret_file::replace_for(&keytab, &all, Some(owner))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::Tool;
    use super::*;

    fn member(realm: &str) -> Membership {
        Membership {
            realm: realm.into(),
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

    /// A record of a keytab: a key of AES-128 for a name of one part.
    fn record(realm: &str, name: &str, kvno: u8) -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        let body = [
            &[0, 1][..],
            &text(realm),
            &text(name),
            &[0, 0, 0, 1, 0, 0, 0, 9, kvno, 0, 17, 0, 16],
            &[kvno; 16],
        ]
        .concat();
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    }

    fn keytab(records: &[Vec<u8>]) -> Vec<u8> {
        [&[5, 2][..], &records.concat()].concat()
    }

    #[test]
    fn a_change_touches_the_keys_of_its_realm_at_the_end_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, member) = (folder.path(), member("A.TEST"));
        member.write(dir).unwrap();
        let other = record("B.TEST", "FILES$", 7);
        let before = keytab(&[record("A.TEST", "FILES$", 1), other.clone()]);
        secret_file::replace_bytes(&keytab_in(dir), &before).unwrap();
        let next = NextKeytab::begin(&member, dir).unwrap();
        assert_eq!(std::fs::read(next.path()).unwrap(), keytab(&[record("A.TEST", "FILES$", 1)]));
        let both = [record("A.TEST", "FILES$", 1), record("A.TEST", "FILES$", 2)];
        secret_file::replace_bytes(next.path(), &keytab(&both)).unwrap();
        assert_eq!(std::fs::read(keytab_in(dir)).unwrap(), before, "before the end");
        let path = next.path().to_owned();
        next.finish().unwrap();
        let after = std::fs::read(keytab_in(dir)).unwrap();
        assert_eq!(after, keytab(&[vec![other], both.to_vec()].concat()));
        assert!(!path.exists());
    }

    #[test]
    fn names_of_nodes_have_no_keys_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let member = Membership { names: vec!["n1".into()], ..member("A.TEST") };
        member.write(dir).unwrap();
        let next = NextKeytab::begin(&member, dir).unwrap();
        let all = ["FILES$", "N1", "n1", "n10"].map(|name| record("A.TEST", name, 1));
        secret_file::replace_bytes(next.path(), &keytab(&all)).unwrap();
        next.drop_names().unwrap();
        let left = Keytab::parse(&std::fs::read(next.path()).unwrap()).unwrap().entries;
        let left: Vec<_> = left.iter().map(|entry| entry.key.principal.to_string()).collect();
        assert_eq!(left, ["FILES$@A.TEST", "n10@A.TEST"]);
    }

    #[test]
    fn the_first_keytab() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, member) = (folder.path(), member("A.TEST"));
        member.write(dir).unwrap();
        let next = NextKeytab::begin(&member, dir).unwrap();
        assert!(!next.path().exists());
        let names = [record("A.TEST", "FILES$", 1), record("A.TEST", "host", 1)];
        secret_file::replace_bytes(next.path(), &keytab(&names)).unwrap();
        next.finish().unwrap();
        assert_eq!(std::fs::read(keytab_in(dir)).unwrap(), keytab(&names));
    }
}
