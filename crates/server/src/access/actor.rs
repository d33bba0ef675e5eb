//! Users of the host whose credentials threads take.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustix::io::Errno;

use crate::base::host::{Assumed, Credentials};

/// A user of the host, shared by all that is open for it: new groups hold for open files too.
#[derive(Debug)]
pub struct Actor(ArcSwap<Credentials>);

impl Actor {
    /// Makes an actor with these credentials.
    pub fn new(credentials: Arc<Credentials>) -> Self {
        Self(ArcSwap::new(credentials))
    }

    /// The credentials as they are now.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.0.load_full()
    }

    /// Replaces the credentials, after the host's groups changed.
    pub fn renew(&self, credentials: Credentials) {
        if *self.0.load_full() != credentials {
            self.0.store(Arc::new(credentials));
        }
    }

    /// Takes the credentials for calls of this thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn assume(&self) -> Result<Assumed, Errno> {
        self.0.load().assume()
    }

    /// The number of the user.
    pub fn uid(&self) -> u32 {
        self.0.load().uid()
    }
}
