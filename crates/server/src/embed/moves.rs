//! Shares that several servers have in turn: the moves from one server to another.

use std::net::SocketAddr;
use std::time::Duration;

use frevo_proto::Dialect;
use frevo_store::state::RecordForm;

use super::{ClusterState, Server};
use crate::objects::durable::record;

/// The moves of a share. A program that decides which server of a cluster has a share calls them.
impl Server {
    /// Loads the records of shares that another server had, and makes their persistent handles anew,
    /// which wait for their clients. Nothing is served yet: clients get SERVER_UNAVAILABLE. Shares that
    /// show the same files are to be started together. Returns the number of handles.
    ///
    /// # Errors
    /// A sentence that says which share could not be started, and why. All have failed then, and may
    /// be started again, or left.
    #[doc(hidden)]
    pub async fn start_shares(&self, names: &[&str]) -> Result<usize, String> {
        self.state().start_shares(names).await.map_err(|fault| fault.to_string())
    }

    /// Serves shares that were started. Until `grace` is over, requests for a file whose persistent
    /// handle waits for its client wait for that too, and are not refused at once.
    ///
    /// # Errors
    /// A sentence, when a share was not started.
    #[doc(hidden)]
    pub async fn serve_shares(
        &self,
        names: &[&str],
        grace: Option<Duration>,
    ) -> Result<(), String> {
        self.state().serve_shares(names, grace).await.map_err(|fault| fault.to_string())
    }

    /// Brings the uses of shares to an end, so that another server can take them. Requests under way
    /// are answered, then the connections of the users end; persistent handles wait for their clients.
    ///
    /// # Errors
    /// A sentence that says which share could not be drained within `patience`, and why. All are
    /// served on then.
    #[doc(hidden)]
    pub async fn drain_shares(&self, names: &[&str], patience: Duration) -> Result<(), String> {
        self.state().drain_shares(names, patience).await.map_err(|fault| fault.to_string())
    }

    /// Writes records of persistent handles in no newer form than `form` from now on: the newest one that
    /// all servers read which may have the shares. Records in newer forms are written again.
    #[doc(hidden)]
    pub fn set_record_form(&self, form: RecordForm) {
        record::set_form(self.state(), form);
    }

    /// Like [`Self::drain_shares`], for shares with addresses. `leave` is awaited between the end of the
    /// requests and that of the connections: it ends when the addresses have left this machine.
    ///
    /// # Errors
    /// Those of [`Self::drain_shares`]. The addresses may have left.
    #[doc(hidden)]
    pub async fn drain_shares_of(
        &self,
        names: &[&str],
        patience: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let drained = self.state().drain_shares_of(names, patience, leave).await;
        drained.map_err(|fault| fault.to_string())
    }

    /// Leaves shares that were drained, or whose start has failed, to another server, which has
    /// `addresses` if they are known.
    ///
    /// # Errors
    /// A sentence, when a share was not drained.
    #[doc(hidden)]
    pub async fn leave_shares(
        &self,
        names: &[&str],
        addresses: &[SocketAddr],
    ) -> Result<(), String> {
        self.state().leave_shares(names, addresses).await.map_err(|fault| fault.to_string())
    }

    /// Stops serving shares, or starting them, at once: another server may own them. The future ends
    /// when changes of files that had begun have ended: a file system that does not answer delays it
    /// until it refuses this server. Names of no share are passed over.
    ///
    /// # Errors
    /// None at present.
    #[doc(hidden)]
    pub async fn stop_shares(&self, names: &[&str]) -> Result<(), String> {
        self.state().stop_shares(names).await.map_err(|fault| fault.to_string())
    }

    /// Stops serving shares at once, in the call itself. It does not wait for the end of changes that had
    /// begun: [`Self::stop_shares`] is to follow. Names of no share are passed over.
    #[doc(hidden)]
    pub fn begin_to_stop_shares(&self, names: &[&str]) {
        drop(self.state().begin_to_stop_shares(names));
    }

    /// Takes shares that another server had, with their persistent handles. Shares that show the
    /// same files are to be taken together. Returns the number of handles, which wait for their
    /// clients.
    ///
    /// # Errors
    /// A sentence that says which share could not be taken, and why.
    #[doc(hidden)]
    pub async fn take_shares(&self, names: &[&str]) -> Result<usize, String> {
        self.state().take_shares(names).await.map_err(|fault| fault.to_string())
    }

    /// Gives shares away, so that another server can take them at `addresses`.
    ///
    /// # Errors
    /// A sentence that says which share could not be given away, and why.
    #[doc(hidden)]
    pub async fn give_shares(
        &self,
        names: &[&str],
        addresses: &[SocketAddr],
    ) -> Result<(), String> {
        self.state().give_shares(names, addresses).await.map_err(|fault| fault.to_string())
    }

    /// Sets the largest dialect by which clients may begin to use clustered shares, MaxClusterDialect of
    /// MS-SMB2 3.3.1.5. None: any.
    #[doc(hidden)]
    pub fn set_cluster_dialect(&self, max: Option<Dialect>) {
        self.state().cluster.set_max_dialect(max);
    }

    /// Sets the addresses of the other server that owns shares, to which clients are sent (MS-SMB2 3.3.5.7)
    /// while the shares are elsewhere. Empty if it is not known, or this one. Names of no share are passed
    /// over.
    #[doc(hidden)]
    pub fn set_share_owner(&self, names: &[&str], addresses: &[SocketAddr]) {
        let mut ips: Vec<_> = addresses.iter().map(|one| one.ip().to_canonical()).collect();
        ips.dedup();
        let shares = self.state().shares();
        for share in names.iter().filter_map(|name| shares.find(name)) {
            share.life.set_owner(ips.clone());
        }
    }

    /// Stops serving a share at once, which another server may own from now on. Returns false if
    /// this server did not serve it.
    ///
    /// # Errors
    /// A sentence, when there is no such share.
    #[doc(hidden)]
    pub fn lose_share(&self, name: &str) -> Result<bool, String> {
        self.state().lose_share(name).map_err(|fault| fault.to_string())
    }

    /// Takes in the state of the cluster. The registered clients of other nodes are told of the
    /// differences at once, by the service witness protocol. A task that follows etcd calls it.
    #[doc(hidden)]
    pub fn set_cluster_state(&self, state: &ClusterState) {
        self.state().witness.set_cluster(state);
    }

    /// Has the clients that have registered by this name use SMB at the addresses of a node. Returns
    /// their number.
    ///
    /// # Errors
    /// A sentence, if no such node is up, or no such client is registered here.
    #[doc(hidden)]
    pub fn move_client(&self, client: &str, to: &str) -> Result<usize, String> {
        match self.state().witness.move_client(client, to) {
            None => Err(format!("the node {to} is not up")),
            Some(0) => {
                Err(format!("no client {client} is registered with the witness of this node"))
            }
            Some(count) => Ok(count),
        }
    }
}
