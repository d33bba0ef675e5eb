//! The parts of a client that all of its requests use.

use alloc::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::endpoint::Endpoints;
use super::options::{BadOptions, Options};
use super::proof::Proofs;
use super::token::Token;
use crate::limits::{REQUESTS, REQUESTS_AT_ONCE, WATCHES};

/// Options, endpoints, the token, and places for requests.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) endpoints: Endpoints,
    pub(super) proofs: Proofs,
    pub(super) token: Token,
    pub(super) runtime: Handle,
    /// Turns of requests that are under way.
    pub(super) at_once: Semaphore,
    /// Places of requests that are under way or wait for a turn.
    pub(super) places: Arc<Semaphore>,
    /// Places of watches.
    pub(super) watches: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(mut options: Options, runtime: Handle) -> Result<Self, BadOptions> {
        let endpoints = Endpoints::new(&options)?;
        // The endpoints have copied what they need. Dropping the options erases the key.
        options.tls = None;
        Ok(Self {
            options,
            endpoints,
            proofs: Proofs::default(),
            token: Token::default(),
            runtime,
            at_once: Semaphore::new(REQUESTS_AT_ONCE),
            places: Arc::new(Semaphore::new(REQUESTS)),
            watches: Arc::new(Semaphore::new(WATCHES)),
        })
    }
}
