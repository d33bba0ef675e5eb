//! The work that only a process with rights can do: fences, identities at the storage, addresses.

use std::future::Future;
use std::pin::Pin;

use frevo_cluster::fence::Fence;
use frevo_cluster::names::ShareName;
use frevo_etcd::engine::Moment;

/// A call that is under way. It may be dropped before its end: what it has begun goes on then.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The work that only a process with rights can do. Errors are sentences for people.
///
/// For one unit neither two looks, nor two calls about addresses are under way at the same time.
pub trait Hands: Send + Sync {
    /// Looks at the storage of a unit, and returns this node's identity there: a new one if the storage
    /// refuses the last one.
    ///
    /// # Errors
    /// If the storage cannot be used. It is looked at again later.
    fn look<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<Fence, String>>;

    /// Has the storage refuse an identity. When this has succeeded, nothing more is written under it.
    ///
    /// # Errors
    /// If the storage does not refuse it. It is tried again.
    fn fence<'a>(&'a self, fence: &'a Fence) -> Call<'a, Result<(), String>>;

    /// Sets the addresses of a unit at this machine, and tells the network.
    ///
    /// # Errors
    /// If one of them is not set. It is tried again.
    fn raise<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>>;

    /// Removes the addresses of a unit from this machine. It is called once at the start, too.
    ///
    /// # Errors
    /// If one of them is still there. It is tried again.
    fn lower<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>>;

    /// Notes a moment of the clock after which no address of a unit may be at this machine, unless a
    /// later one is told: this process may be stopped then.
    fn serve_until(&self, limit: Moment) {
        let _ = limit;
    }
}

/// Hands without rights: no fence, no addresses.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHands;

impl Hands for NoHands {
    fn look<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<Fence, String>> {
        Box::pin(std::future::ready(Ok(Fence::None)))
    }

    fn fence<'a>(&'a self, fence: &'a Fence) -> Call<'a, Result<(), String>> {
        let kind = fence.kind();
        let why = format!("this server has no rights to carry out a fence of the kind {kind}");
        Box::pin(std::future::ready(Err(why)))
    }

    fn raise<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<(), String>> {
        let why = "this server has no rights to set addresses".to_owned();
        Box::pin(std::future::ready(Err(why)))
    }

    fn lower<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
