//! The server as the driver sees it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::ClusterDialect;
use frevo_cluster::values::RecordForm;
use frevo_proto::Dialect;
use frevo_server::{ClusterState, Server};
use frevo_store::state;
use tokio::runtime::Handle;

use crate::hands::Call;

/// Names of shares in lower case.
type Shares = Arc<[Arc<str>]>;

/// A server whose shares move. Each call is about the shares of one unit; errors are sentences for people.
pub trait Served: Send + Sync + 'static {
    /// Loads the records of shares, and makes their Opens again; serves nothing yet. Returns the number of
    /// Opens.
    ///
    /// # Errors
    /// If the shares cannot be started: nothing of them is used.
    fn start(&self, shares: Shares) -> Call<'static, Result<usize, String>>;

    /// Serves shares that were started. For `grace`, clients that had handles come first.
    ///
    /// # Errors
    /// If the shares are not served.
    fn serve(&self, shares: Shares, grace: Option<Duration>) -> Call<'static, Result<(), String>>;

    /// Takes no new users, waits until what is under way has ended, has the addresses leave by `leave`, ends
    /// connections, and waits until records are stable.
    ///
    /// # Errors
    /// If that takes longer than `patience`: the shares are served on. The addresses may have left.
    fn drain(
        &self,
        shares: Shares,
        patience: Duration,
        leave: Call<'static, ()>,
    ) -> Call<'static, Result<(), String>>;

    /// Gives up shares that were drained, or whose start has failed. Clients may be told these addresses.
    ///
    /// # Errors
    /// If a share was not drained.
    fn leave(
        &self,
        shares: Shares,
        addresses: Vec<SocketAddr>,
    ) -> Call<'static, Result<(), String>>;

    /// Stops shares at once, before the call returns. Ends when nothing more is answered and no change to a
    /// file is issued. Shares that are not there are passed over.
    ///
    /// # Errors
    /// If a share may be served on. It is tried again, and nobody else has the unit meanwhile.
    fn stop(&self, shares: Shares) -> Call<'static, Result<(), String>>;

    /// Sets the largest dialect of clients on shares of the cluster, before the call returns. None: no limit.
    fn set_dialect(&self, max: Option<ClusterDialect>);

    /// Sets the addresses of the other node that owns shares, before the call returns. Empty if it is not
    /// known, or if this node owns them.
    fn set_owner(&self, shares: &[Arc<str>], addresses: &[SocketAddr]);

    /// Writes no records in a newer form than `form` from now on, which all nodes read that are up.
    fn set_record_form(&self, form: RecordForm);

    /// Takes in the state of the cluster, and tells the clients that have registered for its changes. It
    /// does not wait.
    fn tell_cluster(&self, state: &ClusterState);
}

fn names(shares: &[Arc<str>]) -> Vec<&str> {
    shares.iter().map(|share| &**share).collect()
}

impl Served for Server {
    fn start(&self, shares: Shares) -> Call<'static, Result<usize, String>> {
        let server = self.clone();
        Box::pin(async move { server.start_shares(&names(&shares)).await })
    }

    fn serve(&self, shares: Shares, grace: Option<Duration>) -> Call<'static, Result<(), String>> {
        let server = self.clone();
        Box::pin(async move { server.serve_shares(&names(&shares), grace).await })
    }

    fn drain(
        &self,
        shares: Shares,
        patience: Duration,
        leave: Call<'static, ()>,
    ) -> Call<'static, Result<(), String>> {
        let server = self.clone();
        Box::pin(async move { server.drain_shares_of(&names(&shares), patience, leave).await })
    }

    fn leave(
        &self,
        shares: Shares,
        addresses: Vec<SocketAddr>,
    ) -> Call<'static, Result<(), String>> {
        let server = self.clone();
        Box::pin(async move { server.leave_shares(&names(&shares), &addresses).await })
    }

    fn stop(&self, shares: Shares) -> Call<'static, Result<(), String>> {
        let server = self.clone();
        // The runtime of the moves may be kept by a file system that does not answer.
        server.begin_to_stop_shares(&names(&shares));
        Box::pin(async move { server.stop_shares(&names(&shares)).await })
    }

    fn set_dialect(&self, max: Option<ClusterDialect>) {
        self.set_cluster_dialect(max.map(|max| Dialect(max.0)));
    }

    fn set_owner(&self, shares: &[Arc<str>], addresses: &[SocketAddr]) {
        self.set_share_owner(&names(shares), addresses);
    }

    fn set_record_form(&self, form: RecordForm) {
        Self::set_record_form(self, state::RecordForm(form.0));
    }

    fn tell_cluster(&self, state: &ClusterState) {
        self.set_cluster_state(state);
    }
}

/// A server whose calls run on another runtime than the driver: a file system that makes a call wait does
/// not keep the driver from confirming its lease.
pub struct Apart {
    served: Arc<dyn Served>,
    runtime: Handle,
}

impl Apart {
    /// Runs the calls of `served` on `runtime`.
    pub fn new(served: Arc<dyn Served>, runtime: Handle) -> Self {
        Self { served, runtime }
    }

    /// Runs a call there. It ends with the returned future, or with that runtime.
    fn run<T: Send + 'static>(
        &self,
        call: Call<'static, Result<T, String>>,
    ) -> Call<'static, Result<T, String>> {
        let mut running = Running(self.runtime.spawn(call));
        Box::pin(async move {
            (&mut running.0).await.unwrap_or_else(|_| Err("the server has ended".to_owned()))
        })
    }
}

/// A call that ends when this value is dropped.
struct Running<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Served for Apart {
    fn start(&self, shares: Shares) -> Call<'static, Result<usize, String>> {
        self.run(self.served.start(shares))
    }

    fn serve(&self, shares: Shares, grace: Option<Duration>) -> Call<'static, Result<(), String>> {
        self.run(self.served.serve(shares, grace))
    }

    fn drain(
        &self,
        shares: Shares,
        patience: Duration,
        leave: Call<'static, ()>,
    ) -> Call<'static, Result<(), String>> {
        self.run(self.served.drain(shares, patience, leave))
    }

    fn leave(
        &self,
        shares: Shares,
        addresses: Vec<SocketAddr>,
    ) -> Call<'static, Result<(), String>> {
        self.run(self.served.leave(shares, addresses))
    }

    fn stop(&self, shares: Shares) -> Call<'static, Result<(), String>> {
        self.run(self.served.stop(shares))
    }

    fn set_dialect(&self, max: Option<ClusterDialect>) {
        self.served.set_dialect(max);
    }

    fn set_owner(&self, shares: &[Arc<str>], addresses: &[SocketAddr]) {
        self.served.set_owner(shares, addresses);
    }

    fn set_record_form(&self, form: RecordForm) {
        self.served.set_record_form(form);
    }

    fn tell_cluster(&self, state: &ClusterState) {
        self.served.tell_cluster(state);
    }
}
