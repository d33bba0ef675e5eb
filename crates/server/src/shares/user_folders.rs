//! Shares with a folder for each user: `{user}` in their path.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use frevo_store::Vfs;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

/// The part of a path, or the name of a share, that stands for the user.
pub const USER: &str = "{user}";

/// Opens the folder of an account; None when there is none.
type Opener = dyn Fn(&str) -> Option<Arc<dyn Vfs>> + Send + Sync;

/// The folders of the users of one share.
#[derive(Clone)]
pub struct UserFolders {
    open: Arc<Opener>,
    /// Folders in use, by account in lower case. At most one for each user who is connected.
    known: Arc<Mutex<HashMap<String, Weak<dyn Vfs>>>>,
}

impl fmt::Debug for UserFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFolders").finish_non_exhaustive()
    }
}

impl UserFolders {
    /// Folders that `open` opens.
    pub fn new(open: Arc<Opener>) -> Self {
        Self { open, known: Arc::default() }
    }

    /// The folder of an account, one file system for all of its sessions. None when there is no
    /// such folder, and for a name that is no name of a folder.
    pub fn of(&self, account: &str) -> Option<Arc<dyn Vfs>> {
        if account.is_empty() || account.starts_with('.') || account.contains(['/', '\\', '\0']) {
            return None;
        }
        let key = fold_name(account);
        if let Some(vfs) = self.known.lock().get(&key).and_then(Weak::upgrade) {
            return Some(vfs);
        }
        // The lock is not held while the folder is opened, because the folder's file server may not
        // answer for long.
        let vfs = (self.open)(account)?;
        let mut known = self.known.lock();
        known.retain(|_, vfs| vfs.strong_count() != 0);
        // Another session of the user may have opened the folder meanwhile. Its Vfs is used,
        // because all sessions of a user share one.
        if let Some(vfs) = known.get(&key).and_then(Weak::upgrade) {
            return Some(vfs);
        }
        known.insert(key, Arc::downgrade(&vfs));
        Some(vfs)
    }

    /// The folders of the users that are connected.
    pub fn in_use(&self) -> Vec<Arc<dyn Vfs>> {
        self.known.lock().values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_have_no_folder() {
        let folders = UserFolders::new(Arc::new(|_| Some(crate::vfs::memory(1 << 20))));
        for bad in ["", ".", "..", "../bob", "a/b", "a\\b", "a\0", ".ssh"] {
            assert!(folders.of(bad).is_none(), "{bad:?}");
        }
        let (one, two) = (folders.of("ann").unwrap(), folders.of("ANN").unwrap());
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &folders.of("bob").unwrap()));
        drop((one, two));
        folders.of("carl");
        assert!(folders.known.lock().len() <= 1);
    }
}
