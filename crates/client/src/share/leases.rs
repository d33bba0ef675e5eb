//! Leases for the Opens of a share.

use std::sync::Arc;

use crate::error::{During, Result};
use crate::session::lease::Lease;
use crate::share::Share;

impl Share {
    /// Returns a lease for Opens of one file in this share. The first of them asks the server
    /// for it.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    #[doc(hidden)]
    pub fn lease(&self) -> Result<Arc<Lease>> {
        Lease::new(&self.session().inner).during("open", self.name())
    }

    /// Returns a lease for Opens of the file `path`, also behind DFS links that were followed
    /// before. An Open behind a link that is followed for the first time has no lease.
    ///
    /// # Errors
    /// Fails if the system has no random numbers, or a target cannot be reached.
    #[doc(hidden)]
    pub async fn lease_of(&self, path: &str) -> Result<Arc<Lease>> {
        if self.way.is_none() {
            return self.lease();
        }
        let path = crate::path::wire_path(path).during("open", &self.url(path))?;
        self.located(path).await?.share.lease()
    }

    /// Returns the share for changes of names in a directory on which this client has `lease`: such
    /// a change does not break it (MS-SMB2 2.2.13.2.10, ParentLeaseKey).
    #[doc(hidden)]
    #[must_use]
    pub fn in_directory(&self, lease: Option<&Lease>) -> Self {
        Self { directory: lease.map(|lease| lease.key), ..self.clone() }
    }
}
