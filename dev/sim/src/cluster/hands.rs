//! The hands of a process - storage, fences, addresses - and its server, as its node uses them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::ClusterDialect;
use frevo_cluster::fence::Fence;
use frevo_cluster::names::ShareName;
use frevo_cluster::values::RecordForm;
use frevo_cluster_node::{Call, Hands, Served};
use frevo_server::{ClusterState, Server};
use tokio::time::{Instant, sleep};

use super::process::Process;
use super::storage::{Connection, View};
use super::world::World;
use crate::actor::Grace;
use crate::event;

/// Identities of one unit are below this number, above those of the unit before.
const OF_ONE_UNIT: Connection = 1 << 20;

/// The hands of a process.
pub(super) struct SimulatedHands {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
    /// The files of each unit.
    pub(super) views: Vec<Arc<View>>,
}

fn ended<T>() -> Result<T, String> {
    Err(String::from("the process has ended"))
}

impl SimulatedHands {
    fn unit(&self, name: &ShareName) -> usize {
        self.world.unit(name)
    }

    /// Waits for a part of `longest` milliseconds, and while the process is stopped. False after its end.
    async fn takes(&self, longest: u64) -> bool {
        let time = {
            let mut dice = self.world.dice.lock();
            let longest = *dice.pick(&[1, 1, longest]);
            dice.micros(100, longest * 1_000)
        };
        sleep(time).await;
        self.process.gate.opened().await
    }
}

impl Hands for SimulatedHands {
    fn look<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<Fence, String>> {
        Box::pin(async move {
            if !self.takes(500).await {
                return ended();
            }
            let unit = self.unit(unit);
            let connection = self.views[unit].look()?;
            if self.world.is_without_fence {
                return Ok(Fence::None);
            }
            let unit = Connection::try_from(unit).unwrap_or(0);
            let connection = unit * OF_ONE_UNIT + connection;
            Ok(Fence::Fuse { connection, host: "host".into() })
        })
    }

    fn fence<'a>(&'a self, fence: &'a Fence) -> Call<'a, Result<(), String>> {
        Box::pin(async move {
            if !self.takes(40).await {
                return ended();
            }
            if self.world.dice.lock().percent(10) {
                return Err(String::from("the storage does not answer"));
            }
            let Fence::Fuse { connection, .. } = fence else {
                return Err(format!("{} is no fence of this cluster", fence.to_text()));
            };
            event!(self.world.trace, "{} fences {connection}", self.process);
            let unit = usize::try_from(connection / OF_ONE_UNIT).unwrap_or(0);
            self.world.units[unit].storage.fence(connection % OF_ONE_UNIT);
            Ok(())
        })
    }

    fn raise<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>> {
        Box::pin(async move {
            if !self.takes(20).await {
                return ended();
            }
            self.world.network.raise(self.unit(unit), self.process.node);
            Ok(())
        })
    }

    fn lower<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>> {
        Box::pin(async move {
            if !self.takes(20).await {
                return ended();
            }
            self.world.network.lower(self.unit(unit), self.process.node);
            Ok(())
        })
    }
}

/// The server of a process, whose orders the world hears of.
#[derive(Clone)]
pub(super) struct Ordered {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
    pub(super) server: Server,
}

/// Names of shares.
type Shares = Arc<[Arc<str>]>;

impl Ordered {
    fn unit(&self, shares: &Shares) -> usize {
        let units = &self.world.units;
        let is_of = |share: &Arc<str>| units.iter().position(|unit| unit.has_share(share));
        shares.iter().find_map(is_of).unwrap_or(0)
    }

    /// Carries out an order while the process is not stopped.
    fn order<T: Send + 'static>(
        &self,
        order: impl Future<Output = T> + Send + 'static,
    ) -> Call<'static, Option<T>> {
        let gate = Arc::clone(&self.process.gate);
        Box::pin(gate.serve(order))
    }

    /// Tells the server the demand of the cluster that the process has heard of.
    fn tell_heard(&self) {
        if let Some(max) = self.process.take_heard() {
            self.tell_dialect(Some(max));
        }
    }

    fn tell_dialect(&self, max: Option<ClusterDialect>) {
        self.process.is_told(max);
        Served::set_dialect(&self.server, max);
    }
}

fn names(shares: &[Arc<str>]) -> Vec<&str> {
    shares.iter().map(|share| &**share).collect()
}

impl Served for Ordered {
    fn start(&self, shares: Shares) -> Call<'static, Result<usize, String>> {
        let (this, unit) = (self.clone(), self.unit(&shares));
        let order = self.order(async move {
            this.world.starts(unit, &this.process);
            this.server.start_shares(&names(&shares)).await
        });
        Box::pin(async move { order.await.unwrap_or_else(ended) })
    }

    fn serve(&self, shares: Shares, grace: Option<Duration>) -> Call<'static, Result<(), String>> {
        let (this, unit) = (self.clone(), self.unit(&shares));
        let order = self.order(async move {
            if this.world.is_told_before_serving() {
                this.tell_heard();
            }
            let served = this.server.serve_shares(&names(&shares), grace).await;
            if served.is_ok() {
                let since = Instant::now();
                let of_unit = grace.map(|grace| Grace { since, until: since + grace });
                *this.world.units[unit].stage.grace.lock() = of_unit;
                this.world.serves(unit, &this.process);
            }
            served
        });
        Box::pin(async move { order.await.unwrap_or_else(ended) })
    }

    fn drain(
        &self,
        shares: Shares,
        patience: Duration,
        leave: Call<'static, ()>,
    ) -> Call<'static, Result<(), String>> {
        let (this, unit) = (self.clone(), self.unit(&shares));
        let order = self.order(async move {
            let drained = this.server.drain_shares_of(&names(&shares), patience, leave).await;
            event!(this.world.trace, "{}: drained: {drained:?}", this.process);
            if drained.is_ok() {
                this.process.set_served(unit, false);
            }
            drained
        });
        Box::pin(async move { order.await.unwrap_or_else(ended) })
    }

    fn leave(
        &self,
        shares: Shares,
        addresses: Vec<SocketAddr>,
    ) -> Call<'static, Result<(), String>> {
        let this = self.clone();
        let order =
            self.order(async move { this.server.leave_shares(&names(&shares), &addresses).await });
        Box::pin(async move { order.await.unwrap_or_else(ended) })
    }

    fn stop(&self, shares: Shares) -> Call<'static, Result<(), String>> {
        let (this, unit) = (self.clone(), self.unit(&shares));
        let order = self.order(async move {
            event!(this.world.trace, "{}: stops {}", this.process, this.world.units[unit].name);
            this.process.set_served(unit, false);
            this.server.stop_shares(&names(&shares)).await
        });
        Box::pin(async move { order.await.unwrap_or_else(ended) })
    }

    fn set_dialect(&self, max: Option<ClusterDialect>) {
        let lateness = self.world.lateness(&self.process);
        self.process.hears(max);
        if lateness.is_zero() {
            let _ = self.process.take_heard();
            return self.tell_dialect(max);
        }
        let (this, gate) = (self.clone(), Arc::clone(&self.process.gate));
        tokio::spawn(async move {
            sleep(lateness).await;
            if gate.opened().await {
                this.tell_heard();
            }
        });
    }

    fn set_owner(&self, shares: &[Arc<str>], addresses: &[SocketAddr]) {
        Served::set_owner(&self.server, shares, addresses);
    }

    fn set_record_form(&self, form: RecordForm) {
        self.server.set_record_form(frevo_store::state::RecordForm(form.0));
    }

    fn tell_cluster(&self, state: &ClusterState) {
        self.world.tell(&self.process, &self.server, state);
    }
}
