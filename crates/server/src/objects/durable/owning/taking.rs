//! Shares that this server takes: their records become Opens, then they are served.

use std::sync::Arc;
use std::time::Duration;

use frevo_store::state::Epoch;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{NotMoved, is_of, read, turns};
use crate::objects::durable::record::{Recorded, restore_all};
use crate::objects::server::ServerState;
use crate::shares::life::{Life, ShareLife};

/// Shares that are being started. Those that are not started when this is dropped have failed.
struct Starting {
    lives: Vec<Arc<Life>>,
    why: String,
}

impl Default for Starting {
    fn default() -> Self {
        Self { lives: Vec::new(), why: String::from("it was not taken to the end") }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        for life in &self.lives {
            // A share that was stopped meanwhile is elsewhere, so the result is ignored.
            let _ = life.fail(self.why.clone());
        }
    }
}

fn stopped(life: &Life) -> NotMoved {
    NotMoved::of(life.share(), &"it was stopped while it was started")
}

impl ServerState {
    /// Loads the records of shares that another server had, and makes their persistent Opens anew.
    /// Serves nothing yet. Shares that show the same files are to be started together. Returns the
    /// number of Opens.
    ///
    /// # Errors
    /// When a share is served already, or its records cannot be loaded: all of `names` have failed
    /// then, and may be started again. A share that is stopped meanwhile fails the others, too.
    pub async fn start_shares(self: &Arc<Self>, names: &[&str]) -> Result<usize, NotMoved> {
        let lives = self.lives(names)?;
        let _turns = turns(&lives).await;
        let mut starting = Starting::default();
        for life in &lives {
            life.start().map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
            starting.lives.push(Arc::clone(life));
        }
        Life::start_together(&lives);
        let started = self.load_and_restore(&lives).await;
        match &started {
            Ok(_) => starting.lives.clear(),
            Err(fault) => {
                tracing::error!(target: "frevo::share", %fault, "cannot start a share");
                starting.why.clone_from(&fault.why);
                for life in &lives {
                    self.end_uses(life).await;
                }
            }
        }
        started
    }

    /// Waits until nothing of the shares' earlier lives here is under way.
    async fn await_earlier_lives(self: &Arc<Self>, lives: &[Arc<Life>]) -> Result<(), NotMoved> {
        for life in lives {
            self.end_uses(life).await;
            let ended = async {
                self.uses_have_ended(life).await;
                // A start that was given up may be making Opens until now.
                self.end_uses(life).await;
                self.work_has_ended(life).await;
            };
            tokio::select! {
                biased;
                () = ended => {}
                () = life.has_left(ShareLife::Starting) => return Err(stopped(life)),
            }
            self.durables.backlog().forget(life);
        }
        Ok(())
    }

    async fn load_and_restore(self: &Arc<Self>, lives: &[Arc<Life>]) -> Result<usize, NotMoved> {
        self.await_earlier_lives(lives).await?;
        let mut loading = Vec::new();
        for life in lives {
            let (done, loaded) = oneshot::channel();
            loading.push((life, loaded));
            match self.durables.store() {
                Some(store) => store.load(life.share(), Box::new(|result| _ = done.send(result))),
                None => drop(done),
            }
        }
        let (mut records, mut epochs) = (Vec::new(), Vec::new());
        for (life, loaded) in loading {
            let loaded = tokio::select! {
                biased;
                loaded = loaded => loaded,
                () = life.has_left(ShareLife::Starting) => return Err(stopped(life)),
            };
            let Ok(loaded) = loaded else {
                if self.durables.store().is_none() {
                    epochs.push((life, Epoch::default()));
                    continue;
                }
                return Err(NotMoved::of(life.share(), &"the state store has not answered"));
            };
            let loaded = loaded.map_err(|fault| NotMoved::of(life.share(), &fault))?;
            epochs.push((life, loaded.ownership.epoch));
            records.extend(read(self, life, loaded)?);
        }
        let count = self.restore_beside(lives, records).await;
        let count = count.map_err(|why| {
            let share = lives.first().map_or("", |life| life.share());
            NotMoved::of(share, &why)
        })?;
        for (life, epoch) in epochs {
            life.restored(epoch).map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
        }
        self.start_scavenger();
        Ok(count)
    }

    /// Makes Opens anew beside the core, which serves others meanwhile.
    async fn restore_beside(
        self: &Arc<Self>,
        lives: &[Arc<Life>],
        records: Vec<Recorded>,
    ) -> Result<usize, String> {
        if records.is_empty() || frevo_net::file_io::stays() {
            return restore_all(self, records, &|| true);
        }
        let (done, restored) = oneshot::channel();
        let (server, runtime, lives) = (Arc::clone(self), Handle::current(), lives.to_vec());
        // The next start, and a stop, wait for the end of this one.
        let changes: Vec<_> = lives.iter().map(Life::begin_change).collect();
        let given = self.blocking_pool.run_for_core(move || {
            let _changes = changes;
            let _runtime = runtime.enter();
            let goes_on = || !done.is_closed() && lives.iter().all(|life| life.is_starting());
            let result = restore_all(&server, records, &goes_on);
            if done.send(result).is_err() {
                // The start was given up meanwhile, so nobody is to have these Opens.
                lives.iter().for_each(|life| server.end_uses_now(life));
            }
        });
        // The share fails in both cases, and its records stay in the state store.
        given.map_err(|_| String::from("no thread can make its handles anew"))?;
        let broken =
            |_| Err(String::from("an error in the program kept its handles from being made"));
        restored.await.unwrap_or_else(broken)
    }

    /// Serves shares that were started. Until `grace` is over, a request for a file whose
    /// persistent Open waits for its client waits for that, too.
    ///
    /// # Errors
    /// When a share was not started.
    pub async fn serve_shares(
        self: &Arc<Self>,
        names: &[&str],
        grace: Option<Duration>,
    ) -> Result<(), NotMoved> {
        let lives = self.lives(names)?;
        let _turns = turns(&lives).await;
        let until = grace.map(|grace| Instant::now() + grace);
        // Clients could not come before. No Open of these shares ends before they are served.
        self.durables.wait_anew(|open| lives.iter().any(|life| is_of(open, life)));
        for life in &lives {
            life.serve(until).map_err(|wrong| NotMoved::of(life.share(), &wrong))?;
            tracing::info!(target: "frevo::share", share = &**life.share(), epoch = life.epoch().0,
                "this server owns the share");
        }
        self.start_scavenger();
        self.watch_limit();
        Ok(())
    }

    /// Starts shares and serves them, without a grace. Returns the number of Opens.
    ///
    /// # Errors
    /// Those of [`Self::start_shares`].
    pub async fn take_shares(self: &Arc<Self>, names: &[&str]) -> Result<usize, NotMoved> {
        let count = self.start_shares(names).await?;
        self.serve_shares(names, None).await?;
        Ok(count)
    }
}
