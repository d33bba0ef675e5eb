//! The report of a node: the values by which nodes are compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frevo_auth::kerberos::Keytab;
use frevo_cluster::Settings;
use frevo_cluster_node::Node;
use frevo_config::Config;
use frevo_etcd::client::Client;
use frevo_etcd::engine::Engine as _;
use frevo_etcd::types::{KeyValue, Keys, Op, Range, Revision, Txn};
use frevo_wire::dtyp::Sid;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde_json::{Value, json};

use super::domain_check::version_in;
use crate::configured::cluster::fingerprints;
use crate::machine_sid::AccountSids;
use crate::{keytab, secret_file, state};

/// Time between two reports of a node.
const EVERY: Duration = Duration::from_secs(10);
/// Reports that are read.
const NODES: u64 = 64;

/// The report of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The node; the end of its key.
    pub(super) node: String,
    /// The beginning of the keys of all reports.
    prefix: Vec<u8>,
    /// The digests of parts of the configuration.
    pub(super) parts: BTreeMap<String, String>,
    /// The folders of shares, by their names.
    paths: BTreeMap<String, PathBuf>,
    /// The identities of the folders: see [`identity`].
    pub(super) folders: BTreeMap<String, String>,
    /// The SID that the configuration gives the machine.
    configured_sid: Option<Sid>,
    /// The account file.
    users_file: PathBuf,
    /// How access lists name the accounts; None in the report of an earlier version.
    pub(super) sids: Option<AccountSids>,
    /// The keytab.
    keytab: Option<PathBuf>,
    /// The newest version of the keys of each realm in the keytab; None in the report of an earlier version.
    pub(super) keys: Option<BTreeMap<String, u32>>,
    /// Milliseconds since 1970, by the clock of the node, when the report was made.
    pub(super) at: u64,
}

/// The beginning of the keys of a cluster's reports.
fn prefix(settings: &Settings) -> Vec<u8> {
    format!("frevo/{}/report/", settings.cluster).into_bytes()
}

/// The number of the folder in its file system, and the time at which it was made where the file system
/// tells it: the same at all nodes that have one file system, however they mount it.
fn identity(path: &Path) -> Option<String> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = statx(CWD, path, AtFlags::empty(), wanted).ok()?;
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let birth = match has_birth {
        true => format!("{}.{:09}", found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
        false => "-".to_owned(),
    };
    Some(format!("{}:{birth}", found.stx_ino))
}

/// The newest version of the keys of each realm in a keytab. A file that cannot be read has none.
fn versions(path: &Path) -> BTreeMap<String, u32> {
    let bytes = secret_file::read_bytes(path).ok().flatten().unwrap_or_default();
    let keytab = Keytab::parse(&bytes).unwrap_or_default();
    let realms = keytab.entries.iter().map(|entry| &entry.key.principal.realm);
    realms.filter_map(|realm| Some((realm.clone(), version_in(&keytab, realm)?))).collect()
}

/// True if two identities can be of one folder. A birth that a mount does not tell decides nothing.
pub(super) fn can_be_one(a: &str, b: &str) -> bool {
    let parts =
        |text: &str| text.split_once(':').map(|(one, two)| (one.to_owned(), two.to_owned()));
    let (Some((a, a_birth)), Some((b, b_birth))) = (parts(a), parts(b)) else { return false };
    a == b && (a_birth == b_birth || a_birth == "-" || b_birth == "-")
}

pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl Report {
    /// The report of a configuration, without the identities of its folders.
    pub(crate) fn of(config: &Config) -> Self {
        let parts = fingerprints(config).into_iter().map(|one| (one.part, one.digest));
        let clustered = config.shares.iter().filter(|share| share.cluster);
        let folder = |share: &frevo_config::ShareSection| {
            let name = frevo_wire::fscc::fold_name(share.name.get_ref().as_str());
            (name, share.shared_folder())
        };
        Self {
            parts: parts.collect(),
            paths: clustered.map(folder).collect(),
            configured_sid: config.server.sid.map(|sid| sid.0),
            users_file: state::users_file_of(config),
            keytab: keytab::path(config).map(Path::to_owned),
            ..Self::default()
        }
    }

    /// The report of this node.
    pub(crate) fn by(self, settings: &Settings) -> Self {
        Self { node: settings.node.to_string(), prefix: prefix(settings), ..self }
    }

    /// Looks at the folders, the account file, the keytab and the clock. A file system may make it wait.
    pub(super) fn look(mut self) -> Self {
        let seen =
            self.paths.iter().filter_map(|(name, path)| Some((name.clone(), identity(path)?)));
        self.folders = seen.collect();
        self.sids = AccountSids::read(self.configured_sid, &self.users_file);
        self.keys = Some(self.keytab.as_deref().map(versions).unwrap_or_default());
        self.at = now();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let sids = self.sids.as_ref();
        let sids = sids.map(|sids| json!({ "machine": sids.machine, "accounts": sids.accounts }));
        let value = json!({
            "at": self.at, "parts": self.parts, "folders": self.folders, "sids": sids, "keys": self.keys,
        });
        value.to_string().into_bytes()
    }

    /// Reads the value of a node's key. None for another value.
    fn parse(node: &str, bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let texts = |name: &str| -> Option<BTreeMap<String, String>> {
            let map = value.get(name)?.as_object()?.iter();
            map.map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned()))).collect()
        };
        let at = value.get("at")?.as_u64()?;
        let (parts, folders) = (texts("parts")?, texts("folders")?);
        let sids = |sids: &Value| {
            let text = |name| sids.get(name).and_then(Value::as_str).map(str::to_owned);
            Some(AccountSids { machine: text("machine"), accounts: text("accounts")? })
        };
        let sids = value.get("sids").and_then(sids);
        let version = |version: &Value| u32::try_from(version.as_u64()?).ok();
        let keys = value.get("keys").and_then(Value::as_object).map(|keys| {
            let keys = keys.iter();
            keys.filter_map(|(realm, value)| Some((realm.clone(), version(value)?))).collect()
        });
        Some(Self { node: node.to_owned(), parts, folders, sids, keys, at, ..Self::default() })
    }

    /// Keeps the report in etcd for as long as the node has its lease.
    pub(crate) async fn keep(self, client: Client, node: Node) {
        loop {
            let report = self.clone();
            let looked = tokio::task::spawn_blocking(move || report.look()).await;
            if let (Ok(report), Some(lease)) = (looked, node.lease()) {
                let key = [&report.prefix[..], report.node.as_bytes()].concat();
                let put = Op::Put { key, value: report.bytes(), lease };
                let txn = Txn { success: vec![put], ..Txn::default() };
                // A report that does not arrive is followed by the next one.
                client.txn(txn, Box::new(drop));
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// Reads the reports of all nodes.
///
/// # Errors
/// A sentence, if etcd does not answer.
pub(super) async fn read_all(client: &Client, settings: &Settings) -> Result<Vec<Report>, String> {
    let prefix = prefix(settings);
    let report = |key: &KeyValue| {
        let node = std::str::from_utf8(key.key.strip_prefix(&prefix[..])?).ok()?;
        Report::parse(node, &key.value)
    };
    Ok(read(client, prefix.clone()).await?.iter().filter_map(report).collect())
}

/// Reads the keys of nodes that begin with a prefix.
pub(super) async fn read(client: &Client, prefix: Vec<u8>) -> Result<Vec<KeyValue>, String> {
    let keys = Keys::Prefix(prefix);
    let range = Range { keys, limit: NODES, after: Vec::new(), revision: Revision(0) };
    let (done, answer) = tokio::sync::oneshot::channel();
    client.range(range, Box::new(|end| _ = done.send(end)));
    let answer = answer.await.map_err(|_| "etcd does not answer".to_owned())?;
    Ok(answer.map_err(|fault| fault.to_string())?.values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back() {
        let text = "[cluster]\nname = \"c\"\nendpoints = [\"http://127.0.0.1\"]\n\
                    [[share]]\nname = \"Tmp\"\npath = \"/tmp\"\ncluster = true\n";
        let mut report = Report::of(&Config::parse(text).unwrap()).look();
        assert!(report.folders.contains_key("tmp") && report.parts.contains_key("[cluster]"));
        let again = Report::parse("n1", &report.bytes()).unwrap();
        assert_eq!((&again.folders, &again.parts), (&report.folders, &report.parts));
        assert_eq!((again.at, &*again.node), (report.at, "n1"));
        for machine in [None, Some("S-1-5-21-1-2-3".to_owned())] {
            report.sids = Some(AccountSids { machine, accounts: "ab".to_owned() });
            assert_eq!(Report::parse("n1", &report.bytes()).unwrap().sids, report.sids);
        }
        report.keys = Some([("A.TEST".to_owned(), 3)].into());
        assert_eq!(Report::parse("n1", &report.bytes()).unwrap().keys, report.keys);
        let earlier = b"{\"at\":1,\"parts\":{},\"folders\":{}}";
        let earlier = Report::parse("n1", earlier).unwrap();
        assert_eq!((earlier.sids, earlier.keys), (None, None));
        for bytes in [&b""[..], b"{}", b"{\"at\":1,\"parts\":{\"a\":1},\"folders\":{}}"] {
            assert_eq!(Report::parse("n1", bytes), None);
        }
    }

    #[test]
    fn folders_are_one_by_number_and_birth() {
        assert!(can_be_one("5:7.1", "5:7.1") && can_be_one("5:-", "5:7.1"));
        assert!(!can_be_one("5:7.1", "6:7.1") && !can_be_one("5:7.1", "5:7.2"));
        assert!(!can_be_one("", ""));
        let one = identity(Path::new("/tmp")).unwrap();
        assert!(can_be_one(&one, &one) && !can_be_one(&one, &identity(Path::new("/usr")).unwrap()));
    }
}
