//! Notices a keytab that another program has changed, so that a new password of the machine account
//! needs no reload: clients get tickets for its new key at once.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::kerberos::{Policy, ServiceKeys};
use frevo_config::Config;
use frevo_server::{KeySource, Reload, Server};
use parking_lot::Mutex;

use crate::keytab::{self, Keys};

/// Time between two looks at the keytab.
pub(super) const EVERY: Duration = Duration::from_secs(3);

/// The state of a file, by which a change shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// The keytab as it was when it was last read.
#[derive(Debug, Default)]
pub(super) struct KeytabWatch {
    read: Option<Stamp>,
    seen: Option<Stamp>,
    /// Looks in a row at which the keytab was missing.
    missing: u32,
}

impl KeytabWatch {
    /// Makes a watch that takes the file as read.
    pub(super) fn of(path: Option<&Path>) -> Self {
        let mut watch = Self::default();
        watch.note(path);
        watch
    }

    /// Takes the file as read.
    pub(super) fn note(&mut self, path: Option<&Path>) {
        self.read = path.and_then(stamp);
        self.seen = self.read;
    }

    /// Takes the keys away when the keytab was there and is gone: the server has left its domain.
    /// Returns true once, when the file was missing at two looks.
    pub(super) fn forget(&mut self, config: &Config, server: &Server) -> bool {
        let Some(path) = keytab::path(config) else { return false };
        let is_gone = self.read.is_some()
            && fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        self.missing = if is_gone { self.missing.saturating_add(1) } else { 0 };
        if self.missing < 2 {
            return false;
        }
        (self.read, self.seen, self.missing) = (None, None, 0);
        server.reload(Reload::new().kerberos(None));
        tracing::warn!(target: "frevo::server", keytab = %path.display(),
            "Kerberos: the keytab is gone, so tickets are not accepted any more; sessions go on until \
             their tickets end");
        true
    }

    /// Reads the keytab of a configuration again if it has changed, and gives the keys to the server.
    /// On a fault the old keys stay in force.
    pub(super) fn look(&mut self, config: &Config, server: &Server) -> Option<Keys> {
        if !self.has_changed(keytab::path(config)) {
            return None;
        }
        match keytab::read(config) {
            Ok(kerberos) => {
                let keys = kerberos?;
                let Keys { keys: service, policy, .. } = keys.clone();
                server.reload(Reload::new().kerberos(Some((service, policy))));
                tracing::info!(target: "frevo::server",
                    "Kerberos: the keytab has changed; tickets for {keys} are accepted");
                Some(keys)
            }
            Err(failure) => {
                tracing::error!(target: "frevo::server",
                    "the keytab has changed, but the old keys stay in force: {failure}");
                None
            }
        }
    }

    /// Returns true once for each change, when the file has stayed as it is since the last look: its
    /// writer may not be done before. A file that is not there has not changed.
    fn has_changed(&mut self, path: Option<&Path>) -> bool {
        let Some(now) = path.and_then(stamp) else { return false };
        let is_still = self.seen.replace(now) == Some(now);
        let is_new = is_still && self.read != Some(now);
        if is_new {
            self.read = Some(now);
        }
        is_new
    }
}

/// The keytab, for a server that has met a ticket for a key that it does not have.
#[derive(Debug)]
pub(super) struct NewerKeys(Mutex<Source>);

#[derive(Debug)]
struct Source {
    config: Config,
    read: Option<Stamp>,
}

impl NewerKeys {
    /// Takes the keytab of a configuration as read.
    pub(super) fn of(config: &Config) -> Arc<Self> {
        let read = keytab::path(config).and_then(stamp);
        Arc::new(Self(Mutex::new(Source { config: config.clone(), read })))
    }

    /// Takes the keytab of another configuration as read.
    pub(super) fn note(&self, config: &Config) {
        let read = keytab::path(config).and_then(stamp);
        *self.0.lock() = Source { config: config.clone(), read };
    }
}

impl KeySource for NewerKeys {
    fn newer(&self) -> Option<(ServiceKeys, Policy)> {
        let mut source = self.0.lock();
        let now = keytab::path(&source.config).and_then(stamp)?;
        if source.read == Some(now) {
            return None;
        }
        // A file that cannot be read may still be written, so it is read again at the next look.
        let Keys { keys, policy, .. } = keytab::read(&source.config).ok().flatten()?;
        source.read = Some(now);
        Some((keys, policy))
    }
}

/// Returns the state of a file. None if there is none.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    // ctime is compared because it also changes with the file's mode, which decides whether the
    // keytab may be used.
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Some(Stamp { inode: metadata.ino(), length: metadata.len(), changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_when_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keytab");
        let mut watch = KeytabWatch::default();
        let look = |watch: &mut KeytabWatch| watch.has_changed(Some(&path));
        watch.note(Some(&path));
        assert!(!look(&mut watch), "there is none yet");
        fs::write(&path, "1").unwrap();
        assert!(!look(&mut watch), "its writer may go on");
        assert!(look(&mut watch));
        assert!(!look(&mut watch));
        fs::write(&path, "12").unwrap();
        assert!(!look(&mut watch));
        fs::write(&path, "123").unwrap();
        assert!(!look(&mut watch) && look(&mut watch) && !look(&mut watch));
        fs::write(&path, "1234").unwrap();
        watch.note(Some(&path));
        assert!(!look(&mut watch) && !look(&mut watch), "a reload has read it");
        assert!(!watch.has_changed(None));
    }
}
