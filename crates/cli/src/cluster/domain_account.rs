//! The account of a cluster in a domain: one for all nodes, with its keys in etcd.
//!
//! The keys are sealed. A reader of etcd learns the realm, and how long the keys are. Each node has the key that
//! opens them in a file, which the administrator copies to it once (docs/adr/0006).

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;
use frevo_auth::kerberos::Keytab;
use frevo_crypto::{STORED_SALT, open_stored, seal_stored};

use crate::exit::{Done, Exit, Failure};
use crate::secret_file::{self, Owner};
use crate::state;

/// The key in the state directory.
const KEY_FILE: &str = "domain/cluster.key";
/// The beginning of a value in etcd.
const FORM: &[u8] = b"frevo-domain 1\n";

/// The key that opens the accounts of the cluster.
pub(crate) struct ClusterKey(Zeroizing<[u8; 32]>);

impl ClusterKey {
    /// The file of the key.
    pub(crate) fn path(state_dir: &Path) -> PathBuf {
        state_dir.join(KEY_FILE)
    }

    /// Reads the key. None if this node has none.
    pub(crate) fn read(state_dir: &Path) -> Result<Option<Self>, Failure> {
        let path = Self::path(state_dir);
        let Some(text) = secret_file::read_in(state_dir, &path)? else { return Ok(None) };
        let key = Self::parse(text.trim()).ok_or_else(|| {
            let text = format!(
                "{} is damaged: it must hold 64 hexadecimal digits; copy it from another node",
                path.display()
            );
            Failure::new(Exit::Config, text)
        })?;
        Ok(Some(key))
    }

    fn parse(digits: &str) -> Option<Self> {
        let mut key = Zeroizing::new([0; 32]);
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// Chooses a key.
    pub(crate) fn choose() -> Result<Self, Failure> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key)
            .map_err(Failure::failed("cannot get random bytes from the system"))?;
        Ok(Self(key))
    }

    /// Keeps the key on the disk. The file belongs to the owner of the state directory.
    pub(crate) fn keep(&self, state_dir: &Path) -> Done {
        let path = Self::path(state_dir);
        let failed = |error| Failure::failed(format!("cannot write {}", path.display()))(error);
        let owner = Owner::of(&std::fs::metadata(state_dir).map_err(failed)?);
        if let Some(dir) = path.parent() {
            state::make_dir(dir)?;
            std::os::unix::fs::chown(dir, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
        }
        let mut text = Zeroizing::new(String::with_capacity(65));
        for byte in self.0.iter() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        secret_file::replace_for(&path, text.as_bytes(), Some(owner))
    }
}

/// The account in one realm.
#[derive(PartialEq, Eq)]
pub(crate) struct DomainAccount {
    /// The facts of the membership, in TOML.
    pub(crate) facts: String,
    /// The keys, as the bytes of a keytab.
    pub(crate) keytab: Zeroizing<Vec<u8>>,
    /// The password of a change that has begun. A controller may have it.
    pub(crate) next_password: Option<Zeroizing<String>>,
}

impl fmt::Debug for DomainAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainAccount({})", self.computer())
    }
}

/// The reason why an account cannot be read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// This node has no key.
    NoKey,
    /// The key of this node is another one.
    OtherKey,
    /// The file of the key cannot be used, for this reason.
    BadFile(String),
    /// A later version of Frevo has written it.
    Later,
}

impl Unreadable {
    /// Returns a sentence with the way to mend it.
    pub(crate) fn sentence(&self, realm: &str, state_dir: &Path) -> String {
        let path = ClusterKey::path(state_dir);
        let path = path.display();
        match self {
            Self::NoKey => format!(
                "the cluster has an account in {realm}, and this node has no key for it: copy {path} from \
                 another node to the same place here, then run: frevo domain join {realm} --cluster"
            ),
            Self::OtherKey => format!(
                "{path} is not the key by which the cluster's account in {realm} is sealed: copy it from \
                 a node that has the keys, then run: frevo domain join {realm} --cluster"
            ),
            Self::BadFile(why) => why.clone(),
            Self::Later => format!(
                "a later version of Frevo has written the cluster's account in {realm}; upgrade Frevo on \
                 this machine"
            ),
        }
    }
}

impl DomainAccount {
    /// Seals the account for its key in etcd.
    pub(super) fn seal(&self, key: &ClusterKey, etcd_key: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut salt = [0; STORED_SALT];
        getrandom::fill(&mut salt)
            .map_err(Failure::failed("cannot get random bytes from the system"))?;
        let next = self.next_password.as_ref().map_or(&[][..], |next| next.as_bytes());
        let parts = [self.facts.as_bytes(), &self.keytab, next];
        // The buffer has its final size at once, because growing it would leave copies of the keys.
        let len = parts.iter().map(|part| 4 + part.len()).sum();
        let mut plain = Zeroizing::new(Vec::with_capacity(len));
        for part in parts {
            let len =
                u32::try_from(part.len()).map_err(Failure::failed("the account is too long"))?;
            plain.extend(len.to_be_bytes());
            plain.extend_from_slice(part);
        }
        let sealed = seal_stored(&key.0, &salt, etcd_key, &plain);
        Ok([FORM, &sealed].concat())
    }

    /// Opens a value of etcd.
    pub(super) fn open(
        value: &[u8],
        key: &ClusterKey,
        etcd_key: &[u8],
    ) -> Result<Self, Unreadable> {
        let sealed = value.strip_prefix(FORM).ok_or(Unreadable::Later)?;
        let plain = open_stored(&key.0, etcd_key, sealed).ok_or(Unreadable::OtherKey)?;
        Self::parse(&plain).ok_or(Unreadable::Later)
    }

    fn parse(mut plain: &[u8]) -> Option<Self> {
        let mut part = || {
            let (len, rest) = plain.split_first_chunk()?;
            let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
            let (part, rest) = rest.split_at_checked(len)?;
            plain = rest;
            Some(part)
        };
        let (facts, keytab, next) = (part()?, part()?, part()?);
        let next = Zeroizing::new(std::str::from_utf8(next).ok()?.to_owned());
        Some(Self {
            facts: std::str::from_utf8(facts).ok()?.to_owned(),
            keytab: Zeroizing::new(keytab.to_vec()),
            next_password: (!next.is_empty()).then_some(next),
        })
    }

    /// The name of the account, without its `$`.
    pub(crate) fn computer(&self) -> String {
        let facts: toml::Table = self.facts.parse().unwrap_or_default();
        facts.get("computer").and_then(|name| name.as_str()).unwrap_or_default().to_owned()
    }

    /// The names by which clients connect, in lower case: those of the cluster and of nodes.
    pub(crate) fn names(&self) -> Vec<String> {
        let facts: toml::Table = self.facts.parse().unwrap_or_default();
        let listed = facts.get("names").and_then(|names| names.as_array());
        let listed = listed.into_iter().flatten().filter_map(|name| name.as_str());
        let own = ["computer", "host"].into_iter();
        let own = own.filter_map(|key| facts.get(key).and_then(|name| name.as_str()));
        own.chain(listed).map(str::to_lowercase).collect()
    }

    /// The newest version of the keys. None without keys.
    pub(crate) fn version(&self) -> Option<u32> {
        let keytab = Keytab::parse(&self.keytab).ok()?;
        keytab.entries.iter().map(|entry| entry.key.kvno).max()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn account(next: Option<&str>) -> DomainAccount {
        DomainAccount {
            facts: "computer = \"NAS\"\nhost = \"nas.a.test\"\nnames = [\"N1\", \"n1.a.test\"]\n"
                .into(),
            keytab: Zeroizing::new(vec![5, 2]),
            next_password: next.map(|next| Zeroizing::new(next.to_owned())),
        }
    }

    #[test]
    fn an_account_comes_back_with_its_key_alone() {
        let (key, other) = (ClusterKey::choose().unwrap(), ClusterKey::choose().unwrap());
        for next in [None, Some("secret")] {
            let account = account(next);
            let value = account.seal(&key, b"frevo/nas/domain/A.TEST").unwrap();
            let open = |key, place: &[u8]| DomainAccount::open(&value, key, place);
            assert_eq!(open(&key, b"frevo/nas/domain/A.TEST"), Ok(account));
            assert_eq!(open(&other, b"frevo/nas/domain/A.TEST"), Err(Unreadable::OtherKey));
            assert_eq!(open(&key, b"frevo/nas/domain/B.TEST"), Err(Unreadable::OtherKey));
            assert!(!value.windows(6).any(|bytes| bytes == b"secret"));
        }
        assert_eq!(DomainAccount::open(b"frevo-domain 2\nx", &key, b""), Err(Unreadable::Later));
        assert_eq!(account(None).computer(), "NAS");
        assert_eq!(account(None).names(), ["nas", "nas.a.test", "n1", "n1.a.test"]);
        assert_eq!(account(None).version(), None);
    }

    #[test]
    fn a_key_is_kept_and_copied() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        assert!(ClusterKey::read(dir).unwrap().is_none());
        let key = ClusterKey::choose().unwrap();
        key.keep(dir).unwrap();
        let path = ClusterKey::path(dir);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(*ClusterKey::read(dir).unwrap().unwrap().0, *key.0);
        for bad in ["", "12", &"g".repeat(64), &"+f".repeat(32)] {
            secret_file::replace(&path, bad).unwrap();
            let failure = ClusterKey::read(dir).map(|_| ()).unwrap_err();
            assert!(failure.message.contains("copy it from another node"), "{failure}");
        }
    }

    #[test]
    fn the_reason_tells_what_to_do() {
        for why in [Unreadable::NoKey, Unreadable::OtherKey] {
            let text = why.sentence("A.TEST", Path::new("/state"));
            assert!(text.contains("/state/domain/cluster.key"), "{text}");
            assert!(text.ends_with("run: frevo domain join A.TEST --cluster"), "{text}");
        }
    }
}
