//! A membership on disk: `domain/REALM` in the state directory.

use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;
use frevo_auth::kerberos::{Keytab, Principal};
use frevo_config::Realm;
use toml_edit::{Array, DocumentMut, value};

use super::arguments::Tool;
use super::tools::SMB_CONF;
use crate::exit::{Exit, Failure};
use crate::secret_file::{self, Owner};
use crate::state;

/// The directory of all memberships in the state directory.
const MEMBERSHIPS: &str = "domain";
/// The keytab of all memberships, in that directory.
const KEYTAB: &str = "keytab";
/// Bytes of a keytab before its first record.
pub(super) const VERSION_LEN: usize = 2;
/// The facts of one membership, in its directory.
const FACTS: &str = "membership.toml";

/// A machine account of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) realm: String,
    /// The short name of the domain.
    pub(crate) domain: String,
    /// The name of the machine account, without its `$`.
    pub(crate) computer: String,
    /// The name by which clients connect.
    pub(crate) host: String,
    /// The controller that the administrator named.
    pub(crate) controller: Option<String>,
    /// The organisational unit that the administrator named, such as `Servers/Files`.
    pub(crate) ou: Option<String>,
    /// The program that joined.
    pub(crate) tool: Tool,
    /// The cluster, if all nodes of one have the account.
    pub(crate) cluster: Option<String>,
    /// Further names by which clients connect: those of nodes.
    pub(crate) names: Vec<String>,
}

/// Returns the keytab of all memberships. One file serves several realms: each of its keys is tried.
pub(crate) fn keytab_in(state_dir: &Path) -> PathBuf {
    state_dir.join(MEMBERSHIPS).join(KEYTAB)
}

impl Membership {
    /// The principal of the machine account.
    pub(crate) fn principal(&self) -> Principal {
        Principal::user(&format!("{}$", self.computer.to_uppercase()), &self.realm)
    }

    /// The service that clients ask for.
    pub(crate) fn service(&self) -> Principal {
        Principal::service("cifs", &self.host, &self.realm)
    }

    /// The salt of the account's keys, where no controller tells it (MS-KILE 3.1.1.2).
    pub(super) fn salt(&self) -> String {
        let (realm, computer) = (&self.realm, self.computer.to_lowercase());
        format!("{}host{computer}.{}", realm.to_uppercase(), realm.to_lowercase())
    }

    /// The directory of a membership.
    pub(crate) fn dir(state_dir: &Path, realm: &str) -> PathBuf {
        state_dir.join(MEMBERSHIPS).join(realm)
    }

    /// Reads the memberships, of one realm or all, in the order of their names.
    pub(crate) fn all(state_dir: &Path, only: Option<&Realm>) -> Result<Vec<Self>, Failure> {
        let dir = state_dir.join(MEMBERSHIPS);
        let failed = |error| Failure::failed(format!("cannot list {}", dir.display()))(error);
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(failed)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let dirs = entries.iter().map(|entry| entry.path()).filter(|path| path.is_dir());
        let mut files: Vec<PathBuf> = dirs.map(|dir| dir.join(FACTS)).collect();
        files.sort();
        let mut found = Vec::new();
        for file in files {
            found.extend(Self::read(state_dir, &file)?);
        }
        found.retain(|one| only.is_none_or(|realm| realm.as_str() == one.realm));
        if let Some(realm) = only.filter(|_| found.is_empty()) {
            let text =
                format!("this server is no member of {realm}; join: frevo domain join {realm}");
            return Err(Failure::new(Exit::NotFound, text));
        }
        Ok(found)
    }

    /// True if a join made a smb.conf, with which winbind may run.
    pub(crate) fn has_smb_conf(state_dir: &Path) -> bool {
        let entries = std::fs::read_dir(state_dir.join(MEMBERSHIPS)).into_iter().flatten();
        entries.flatten().any(|entry| entry.path().join(SMB_CONF).exists())
    }

    fn read(state_dir: &Path, file: &Path) -> Result<Option<Self>, Failure> {
        let Some(text) = secret_file::read_in(state_dir, file)? else { return Ok(None) };
        let damaged = || {
            let text = format!("{} is damaged; join the domain again", file.display());
            Failure::new(Exit::Config, text)
        };
        Self::parse(&text).map(Some).ok_or_else(damaged)
    }

    /// Reads the facts. None if one is missing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let table: toml::Table = text.parse().ok()?;
        let text = |key: &str| table.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let names = table.get("names").and_then(|names| names.as_array());
        let names = names.into_iter().flatten().filter_map(|name| name.as_str());
        Some(Self {
            realm: text("realm")?,
            domain: text("domain")?,
            computer: text("computer")?,
            host: text("host")?,
            controller: text("controller"),
            ou: text("ou"),
            tool: match &*text("tool")? {
                "net" => Tool::Net,
                "adcli" => Tool::Adcli,
                _ => return None,
            },
            cluster: text("cluster"),
            names: names.map(str::to_owned).collect(),
        })
    }

    /// Keeps the facts.
    pub(crate) fn write(&self, state_dir: &Path) -> Result<(), Failure> {
        let dir = Self::dir(state_dir, &self.realm);
        state::make_dir(&dir)?;
        secret_file::replace(&dir.join(FACTS), &self.text())
    }

    /// The facts, in TOML.
    pub(super) fn text(&self) -> String {
        let mut document = DocumentMut::new();
        for (key, text) in [
            ("realm", &*self.realm),
            ("domain", &*self.domain),
            ("computer", &*self.computer),
            ("host", &*self.host),
            ("tool", self.tool.name()),
        ] {
            document[key] = value(text);
        }
        let optional =
            [("controller", &self.controller), ("ou", &self.ou), ("cluster", &self.cluster)];
        for (key, text) in optional {
            if let Some(text) = text {
                document[key] = value(&**text);
            }
        }
        if !self.names.is_empty() {
            document["names"] = value(self.names.iter().collect::<Array>());
        }
        document.to_string()
    }

    /// Forgets the membership: its directory, its keys, and the SIDs that its domain has told.
    pub(crate) fn forget(&self, state_dir: &Path) -> Result<(), Failure> {
        let dir = Self::dir(state_dir, &self.realm);
        std::fs::remove_dir_all(&dir)
            .map_err(Failure::failed(format!("cannot remove {}", dir.display())))?;
        // The file has the SIDs of other domains, too. A server asks for them again.
        let sids = state_dir.join(state::DOMAIN_SIDS);
        match std::fs::remove_file(&sids) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("cannot remove {}", sids.display()))(error));
            }
            _ => {}
        }
        if !Self::all(state_dir, None)?.is_empty() {
            return forget_keys(state_dir, &self.realm);
        }
        let path = keytab_in(state_dir);
        if !path.exists() {
            return Ok(());
        }
        std::fs::remove_file(&path)
            .map_err(Failure::failed(format!("cannot change {}", path.display())))
    }
}

/// Removes the keys of a realm from the keytab, and a keytab that has no others.
pub(crate) fn forget_keys(state_dir: &Path, realm: &str) -> Result<(), Failure> {
    let path = keytab_in(state_dir);
    let failed = Failure::failed(format!("cannot change {}", path.display()));
    let Some(bytes) = secret_file::read_bytes_in(state_dir, &path)? else { return Ok(()) };
    let others = Parts::of(&bytes, realm).others;
    if others.len() > VERSION_LEN {
        let metadata = std::fs::metadata(state_dir).map_err(failed)?;
        return secret_file::replace_for(&path, &others, Some(Owner::of(&metadata)));
    }
    std::fs::remove_file(&path).map_err(failed)
}

/// The bytes of a keytab in two keytabs: of one realm, and of all others.
#[derive(Debug)]
pub(super) struct Parts {
    /// The keys of the realm.
    pub(super) ours: Zeroizing<Vec<u8>>,
    /// The keys of all other realms, and what cannot be read.
    pub(super) others: Zeroizing<Vec<u8>>,
}

impl Parts {
    pub(super) fn of(keytab: &[u8], realm: &str) -> Self {
        let Some((version, mut rest)) = keytab.split_at_checked(VERSION_LEN) else {
            return Self { ours: Zeroizing::default(), others: Zeroizing::new(keytab.to_vec()) };
        };
        let copy = || Zeroizing::new(version.to_vec());
        let mut parts = Self { ours: copy(), others: copy() };
        while let Some((length, after)) = rest.split_first_chunk() {
            // In a keytab the length of a deleted entry is negative; its record is skipped by the
            // absolute value.
            let size = usize::try_from(i32::from_be_bytes(*length).unsigned_abs()).unwrap_or(0);
            let Some((record, after)) = after.split_at_checked(size) else { break };
            rest = after;
            let of_realm = || {
                let (length, text) = record.get(2..)?.split_first_chunk()?;
                text.get(..u16::from_be_bytes(*length).into())
            };
            if i32::from_be_bytes(*length) > 0 {
                let is_ours = of_realm() == Some(realm.as_bytes());
                let part = if is_ours { &mut parts.ours } else { &mut parts.others };
                part.extend(length);
                part.extend(record);
            }
        }
        parts.others.extend(rest);
        parts
    }
}

/// Reads a keytab that only its owner can read, who runs this, is root or, below the state directory,
/// its owner. None where there is none.
pub(crate) fn read_keytab_in(state_dir: &Path, path: &Path) -> Result<Option<Keytab>, Failure> {
    let bytes = if path.starts_with(state_dir) {
        secret_file::read_bytes_in(state_dir, path)?
    } else {
        secret_file::read_bytes(path)?
    };
    let Some(bytes) = bytes else { return Ok(None) };
    Keytab::parse(&bytes).map(Some).map_err(|malformed| {
        let text = format!("the keytab {} is damaged: {malformed}", path.display());
        Failure::new(Exit::Config, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(realm: &str) -> Membership {
        Membership {
            realm: realm.into(),
            domain: "A".into(),
            computer: "files".into(),
            host: "files.a.test".into(),
            controller: Some("dc \"1\"".into()),
            ou: Some("Servers/Files".into()),
            tool: Tool::Adcli,
            cluster: None,
            names: Vec::new(),
        }
    }

    /// The beginning of a record, behind its length.
    fn record(realm: &str) -> Vec<u8> {
        let body = [&[0, 1, 0, realm.len() as u8], realm.as_bytes(), b"rest"].concat();
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    }

    #[test]
    fn a_keytab_that_cannot_be_read_stays() {
        for odd in [&[][..], &[5], &[5, 2, 0, 0, 0, 9, 1], &[5, 2, 0, 0]] {
            assert_eq!(*Parts::of(odd, "A").others, odd);
        }
        let hole = [&[5, 2, 255, 255, 255, 254, 0, 0], &record("B")[..]].concat();
        assert_eq!(*Parts::of(&hole, "A").others, [&[5, 2], &record("B")[..]].concat());
        assert_eq!(*Parts::of(&hole, "B").ours, [&[5, 2], &record("B")[..]].concat());
    }

    #[test]
    fn memberships_are_kept_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        assert!(Membership::all(dir, None).unwrap().is_empty());
        for realm in ["B.TEST", "A.TEST"] {
            member(realm).write(dir).unwrap();
        }
        let all = Membership::all(dir, None).unwrap();
        assert_eq!(all, [member("A.TEST"), member("B.TEST")]);
        assert_eq!(all[0].principal().to_string(), "FILES$@A.TEST");
        assert_eq!(all[0].service().to_string(), "cifs/files.a.test@A.TEST");
        assert_eq!(all[0].salt(), "A.TESThostfiles.a.test");
        let of_cluster = Membership {
            cluster: Some("nas".into()),
            names: vec!["n1".into(), "n1.a.test".into()],
            ..member("C.TEST")
        };
        assert_eq!(Membership::parse(&of_cluster.text()), Some(of_cluster));
        let only = |realm: &str| Membership::all(dir, Some(&realm.parse().unwrap()));
        assert_eq!(only("B.TEST").unwrap(), [member("B.TEST")]);
        assert_eq!(only("C.TEST").unwrap_err().exit, Exit::NotFound);
        let keys = [&[5, 2], &record("A.TEST")[..], &record("B.TEST"), &record("A.TEST")].concat();
        secret_file::replace_bytes(&keytab_in(dir), &keys).unwrap();
        let sids = dir.join(state::DOMAIN_SIDS);
        std::fs::write(&sids, "{}").unwrap();
        member("A.TEST").forget(dir).unwrap();
        assert!(!sids.exists());
        let left = std::fs::read(keytab_in(dir)).unwrap();
        assert_eq!(left, [&[5, 2], &record("B.TEST")[..]].concat());
        member("B.TEST").forget(dir).unwrap();
        assert!(!keytab_in(dir).exists() && Membership::all(dir, None).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_record_says_so() {
        let folder = tempfile::tempdir().unwrap();
        member("A.TEST").write(folder.path()).unwrap();
        let file = Membership::dir(folder.path(), "A.TEST").join(FACTS);
        for text in ["realm = \"A.TEST\"", "realm", "tool = \"other\""] {
            secret_file::replace(&file, text).unwrap();
            let failure = Membership::all(folder.path(), None).unwrap_err();
            assert!(failure.message.contains("join the domain again"), "{failure}");
        }
    }
}
