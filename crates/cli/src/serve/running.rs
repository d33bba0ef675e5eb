//! The loop of a server that runs: signals, reloads, changes of shares, looks at folders.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_net::transport::Listener;
use frevo_server::audit::{Event, Kind};
use frevo_server::folders::{Look, accept_folder, look_at_folder};
use frevo_server::{
    Kick, NamespaceChange, NotChanged, NotEdited, Reload, Reviewed, Server, ShareEdit, panics,
};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::arguments::Serve;
use crate::config_sources::Sources;
use crate::configured;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::keytab::{self, Keys};
use crate::logging::{self, Logging};
use crate::network_namespaces::NetworkNamespaces;
use crate::network_shares::NetworkShares;
use crate::share_guards::ShareGuards;

use super::admin_interface::Started;
use super::cluster::{self, Made, Namespaces, State, Wanted};
use super::confine::Confined;
use super::directory::Directory;
use super::discovery::Discovery;
use super::keytab_watch::{self, KeytabWatch, NewerKeys};
use super::loaded::{Loaded, OpenShare, warn};
use super::mount_events::MountEvents;
use super::plan::Plan;
use super::quic::CertificateWatch;
use super::service_manager::notify;
use super::share_edits::{Asked, Edits};
use super::signals::{Cause, Signals};
use super::snapshots::Snapshots;
use super::target_servers::TargetServers;

/// A server that runs, with all that its loop waits for.
pub(super) struct Running<'a> {
    pub(super) arguments: &'a Serve,
    pub(super) logging: &'a Logging,
    pub(super) guid: Guid,
    pub(super) server: Server,
    pub(super) loaded: Loaded,
    pub(super) signals: Signals,
    pub(super) confined: Confined,
    pub(super) discovery: Discovery,
    pub(super) target_servers: TargetServers,
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) edits: Edits,
    pub(super) admin: Started,
    pub(super) newer_keys: Arc<NewerKeys>,
    pub(super) keytab_watch: KeytabWatch,
    pub(super) certificates: CertificateWatch,
    pub(super) guards: ShareGuards,
    pub(super) mounts: MountEvents,
    /// The place in a cluster; None for a server on its own.
    pub(super) cluster: Option<cluster::Running>,
    /// The snapshots that are made of shares; None without any.
    pub(super) snapshots: Option<Snapshots>,
}

/// The departure from a cluster, before the server stops. Its end is the time that is left for that.
type Leaving = Pin<Box<dyn Future<Output = Duration> + Send>>;

/// The place where a namespace is kept that was made over the network.
enum Storage {
    /// A file of this server.
    Here(OwnFile),
    /// etcd, for all nodes of the cluster.
    Etcd(Namespaces, Wanted),
}

/// A file of this server, with the texts of its configuration.
struct OwnFile {
    sources: Sources,
    file: NetworkNamespaces,
}

fn not_applied() -> NotChanged {
    NotChanged::Failed(String::from(
        "the configuration with this change could not be applied; the lines above say why",
    ))
}

/// Ends when the departure has ended. Never without one.
async fn left(leaving: &mut Option<Leaving>) -> Duration {
    match leaving {
        Some(leaving) => leaving.await,
        None => std::future::pending().await,
    }
}

impl Running<'_> {
    pub(super) async fn serve(mut self, listeners: Vec<Listener>) -> Done {
        let mut is_stopping = false;
        let server = self.server.clone();
        let mut serving = std::pin::pin!(server.serve(listeners));
        let version = env!("CARGO_PKG_VERSION");
        self.record(|| Event::new(Kind::Start).with("version", version));
        self.target_servers.begin(&self.server, &self.loaded);
        release_read();
        let refused = tokio::spawn(self.confined.tell_refused());
        print(b"ready\n")?;
        notify(&[NotifyState::Ready, NotifyState::Status(self.loaded.state())]);
        let mut looks = tokio::time::interval(keytab_watch::EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leaving: Option<Leaving> = None;
        loop {
            tokio::select! {
                rest = left(&mut leaving) => {
                    leaving = None;
                    self.server.stop_within(rest);
                }
                served = &mut serving => {
                    refused.abort();
                    self.record(|| Event::new(Kind::Stop));
                    if let Some(audit) = self.server.audit() {
                        audit.finish();
                    }
                    return served.map_err(Failure::failed("cannot serve"));
                }
                Some(asked) = self.edits.recv() => self.carry_out(asked, is_stopping),
                Some(asked) = self.admin.wishes.accounts.recv() => {
                    let Self { loaded, server, arguments, guid, .. } = &mut self;
                    if let Some(reviewed) = asked.carry_out(loaded, server, arguments, *guid) {
                        self.record(|| reloaded(reviewed));
                    }
                }
                Some(asked) = self.admin.wishes.configuration.recv() => {
                    let stops = || Err(String::from("the server stops"));
                    asked.answer(if is_stopping { stops() } else { self.reload() });
                }
                _ = looks.tick() => {
                    self.look_at_keytab();
                    self.certificates.look(&self.loaded.plan.config);
                    self.look_at_folders(Look::Timed);
                }
                () = self.mounts.changed() => self.look_at_folders(Look::Untimed),
                cause = self.signals.next() => match (cause, is_stopping) {
                    (Cause::Stop, false) => {
                        is_stopping = true;
                        leaving = self.begin_stop();
                    }
                    (Cause::Stop, true) => {
                        return Err(Failure::new(Exit::Failed, "stopped without finishing the pending requests"));
                    }
                    (Cause::Reload, false) => drop(self.reload()),
                    (Cause::Reload, true) => {}
                }
            }
        }
    }

    /// Begins the end of the server: at once, or when the returned departure from the cluster has ended.
    fn begin_stop(&self) -> Option<Leaving> {
        notify(&[NotifyState::Stopping]);
        tracing::info!(target: "frevo::server", "stopping: finishing pending requests");
        // Clients find the next owner before the server ends.
        let leaving = self.cluster.clone().map(|cluster| Box::pin(cluster.leave()) as Leaving);
        if leaving.is_none() {
            self.server.stop();
        }
        leaving
    }

    /// Takes the keys of a keytab that has changed, or takes them away when it is gone.
    fn look_at_keytab(&mut self) {
        let config = &self.loaded.plan.config;
        if let Some(keys) = self.keytab_watch.look(config, &self.server) {
            self.loaded.kerberos = Some(keys);
            self.renew_keytab();
        } else if self.keytab_watch.forget(config, &self.server) {
            self.loaded.kerberos = None;
        }
    }

    /// Compares the folders of all shares with what their paths lead to, beside this thread: a file
    /// system may not answer.
    fn look_at_folders(&self, why: Look) {
        for share in &self.loaded.shares {
            if share.is_looked_at.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (folders, is_looked_at) = (share.folders(), Arc::clone(&share.is_looked_at));
            tokio::task::spawn_blocking(move || {
                folders.iter().for_each(|folder| look_at_folder(&**folder, why));
                is_looked_at.store(false, Ordering::Release);
            });
        }
    }

    /// Records an event, if there is an audit log.
    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(audit) = self.server.audit() {
            audit.emit(event());
        }
    }

    /// Reads the configuration again. On a fault it keeps the old configuration, and logs and returns
    /// the reason.
    fn reload(&mut self) -> Result<(), String> {
        // systemd expects the time at which the reload began.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(_) => notify(&[NotifyState::Reloading]),
        }
        if let Some(audit) = self.server.audit() {
            // Log rotation sends SIGHUP after it has renamed the audit file, so the file is opened
            // again.
            audit.reopen();
        }
        let reload = Event::new(Kind::Reload);
        let failed = |why: String| reload.clone().status(Status::UNSUCCESSFUL).with("reason", why);
        let done = panics::contained(|| self.try_reload());
        let (event, done) = match done {
            Some(Ok(reviewed)) => {
                tracing::info!(target: "frevo::server", "configuration reloaded");
                (reloaded(reviewed), Ok(()))
            }
            Some(Err(failure)) => {
                tracing::error!(target: "frevo::server",
                    "reload failed, the old configuration stays in force: {failure}");
                (failed(failure.to_string()), Err(failure.to_string()))
            }
            None => {
                tracing::error!(target: "frevo::server",
                    "reload failed because of a bug; the old configuration stays in force; restart \
                     the server to apply the new one");
                let why = String::from("internal error");
                (failed(why.clone()), Err(why))
            }
        };
        self.record(|| event);
        if let Err(why) = &done {
            self.admin.not_in_force.note_refusal(why);
        }
        notify(&[NotifyState::Ready]);
        release_read();
        done
    }

    /// Makes a change that an administrator asks for over the network.
    fn carry_out(&mut self, asked: Asked, is_stopping: bool) {
        let stops = || String::from("the server stops");
        // A send fails if the connection that asked for the change is closed meanwhile.
        match asked {
            Asked::Share { edit, by, answer } => {
                let done = if is_stopping {
                    Err(NotEdited::Failed(stops()))
                } else {
                    self.edit_shares(&edit)
                };
                if let (Ok(()), ShareEdit::Remove { name }) = (&done, edit) {
                    let server = self.server.clone();
                    tokio::spawn(async move { server.kick(&Kick::Share(name), &by).await });
                }
                let _ = answer.send(done);
            }
            Asked::Namespace { change, answer } => {
                let done = if is_stopping {
                    Err(NotChanged::Failed(stops()))
                } else {
                    match self.storage_of(&change) {
                        Ok(Storage::Here(file)) => self.change_namespace(&file, &change),
                        Ok(Storage::Etcd(namespaces, wanted)) => {
                            drop(tokio::spawn(namespaces.change(wanted, answer)));
                            return;
                        }
                        Err(why) => Err(why),
                    }
                };
                let _ = answer.send(done);
            }
            Asked::Kept { made, .. } if is_stopping => {
                made.and_then(|made| made.tell(Err(NotChanged::Failed(stops()))));
            }
            Asked::Kept { state, made } => self.take_kept(&state, made),
        }
    }

    /// Reads the texts of the configuration again.
    fn sources(&self) -> Result<Sources, Failure> {
        Sources::of(self.arguments.config.as_deref())
    }

    /// The place where the namespace of a change is kept.
    fn storage_of(&self, change: &NamespaceChange) -> Result<Storage, NotChanged> {
        let failed = |failure: Failure| NotChanged::Failed(failure.to_string());
        let sources = Sources::without_kept(self.arguments.config.as_deref()).map_err(failed)?;
        let table = sources.table_without_links();
        let files = NetworkNamespaces::of_table(&table);
        let file = NetworkNamespaces::find(files, &table, change.namespace()).ok_or_else(|| {
            NotChanged::Forbidden(String::from(
                "namespaces may not be changed over the network; use frevo namespace, or set \
                 network_namespaces in [server]",
            ))
        })?;
        Ok(match &self.cluster {
            Some(cluster) if file.is_of_cluster() => {
                let change = change.clone();
                let wanted = Wanted { change, sources, copy: file };
                Storage::Etcd(cluster.namespaces.clone(), wanted)
            }
            _ => Storage::Here(OwnFile { sources, file }),
        })
    }

    /// Stores a change of the namespaces that were made over the network in the file of this server, and applies
    /// it. Undoes it when that fails.
    fn change_namespace(
        &mut self,
        file: &OwnFile,
        change: &NamespaceChange,
    ) -> Result<(), NotChanged> {
        let failed = |failure: Failure| NotChanged::Failed(failure.to_string());
        let OwnFile { sources, file: network } = file;
        let before = network.stored().map_err(failed)?.unwrap_or_default();
        let after = network.changed(&before, &self.loaded.plan.config, change)?;
        let file = network.file.display().to_string();
        let checked = sources.with(&file, &after).config();
        checked.map_err(|failure| NotChanged::Bad(failure.to_string()))?;
        network.write_made(&after).map_err(failed)?;
        if self.reload().is_ok() {
            return Ok(());
        }
        network.write(&before).map_err(failed)?;
        Err(not_applied())
    }

    /// Serves the namespaces that the cluster has for its shares, and answers the administrator who has made
    /// the change. One that cannot be served here is taken back.
    fn take_kept(&mut self, state: &State, made: Option<Made>) {
        let is_served = self.serve_kept(state).unwrap_or_else(|failure| {
            tracing::error!(target: "frevo::cluster",
                "the namespaces of the cluster are not served as they are now: {failure}");
            false
        });
        let done = if is_served { Ok(()) } else { Err(not_applied()) };
        if let Some(cluster) = self.cluster.as_ref().filter(|_| !is_served) {
            drop(tokio::spawn(cluster.namespaces.clone().retry()));
        }
        let before = made.and_then(|made| made.tell(done));
        if let (Some(before), Some(cluster)) = (before, &self.cluster) {
            drop(tokio::spawn(cluster.namespaces.clone().undo(state.turn.revision, before)));
        }
    }

    /// False if the configuration with the namespaces is not applied. The copy is kept all the same, for the
    /// next reload.
    fn serve_kept(&mut self, state: &State) -> Result<bool, Failure> {
        // Without any in etcd there is no copy to keep.
        let is_known =
            |cluster: &cluster::Running| state.turn.is_of_none() || state.turn <= cluster.kept;
        if self.cluster.as_ref().is_none_or(is_known) {
            return Ok(true);
        }
        state.warn();
        let sources = Sources::without_kept(self.arguments.config.as_deref())?;
        let table = sources.table_without_links();
        let (own, copy) = NetworkNamespaces::of_node(&table);
        let is_new = copy.copy(&state.text)?;
        let left = own.leave_to_cluster(&table, &state.entries);
        if let Err(failure) = left {
            tracing::warn!(target: "frevo::cluster", "{failure}");
        }
        let is_behind = self.cluster.as_ref().is_some_and(|cluster| cluster.is_behind);
        let is_served = !(is_new || is_behind) || self.reload().is_ok();
        if let Some(cluster) = &mut self.cluster {
            cluster.is_behind = !is_served;
            if is_served {
                cluster.kept = state.turn;
            }
        }
        Ok(is_served)
    }

    /// Stores a change of the shares that were added over the network, and applies it. Undoes it
    /// when that fails.
    fn edit_shares(&mut self, edit: &ShareEdit) -> Result<(), NotEdited> {
        let failed = |failure: Failure| NotEdited::Failed(failure.to_string());
        let sources = self.sources().map_err(failed)?;
        let shares = NetworkShares::of_table(&sources.table_without_links());
        let shares = shares.ok_or_else(|| {
            NotEdited::Forbidden(String::from(
                "share_roots in [server] names no folder below which shares may be added over the \
                 network; use frevo share, or set that key",
            ))
        })?;
        let before = shares.stored().map_err(failed)?.unwrap_or_default();
        let after = shares.edited(&before, &self.loaded.plan.config, edit)?;
        shares.write(&after).map_err(failed)?;
        let is_reloaded = self.reload().is_ok();
        let is_named = |share: &OpenShare| {
            fold_name(share.section.name.get_ref().as_str()) == fold_name(edit.name())
        };
        let is_served = self.loaded.shares.iter().any(is_named);
        let is_wanted = !matches!(edit, ShareEdit::Remove { .. });
        if is_reloaded && is_served == is_wanted {
            return Ok(());
        }
        shares.write(&before).map_err(failed)?;
        if is_reloaded {
            // The failure is logged.
            let _ = self.reload();
        }
        Err(NotEdited::Failed(String::from(
            "the configuration with this change could not be applied; the lines above say why",
        )))
    }

    fn try_reload(&mut self) -> Result<Reviewed, Failure> {
        let mut plan = Plan::new(self.arguments)?;
        if let Some(snapshots) = &self.snapshots {
            snapshots.place(&mut plan.config);
        }
        self.confined.check_files(&plan, self.arguments)?;
        let left_out = self.confined.leave_out(&mut plan.config.shares);
        let refused = |why: String| Failure::new(Exit::Config, why);
        cluster::refusal(&self.loaded.plan.config, &plan.config)
            .map_or(Ok(()), |why| Err(refused(why)))?;
        // All steps that can fail come before the first change, so that a reload changes everything
        // or nothing.
        let level = plan.config.server.log_level.clone();
        logging::filter(level.as_deref())?;
        let before = (self.loaded.logon.clone(), &*self.loaded.shares);
        let guards = Some(&self.guards);
        let mut new = Loaded::new(plan, self.arguments, self.guid, Some(before), guards)?;
        new.directory.clone_from(&self.loaded.directory);
        new.not_served.extend(left_out);
        new.keeps_moving(&self.loaded).map_err(refused)?;
        let tls = self.certificates.load(&new.plan.config)?;
        self.logging.set_level(level.as_deref())?;
        let change = Reload::new()
            .settings(new.settings.clone())
            .shares(new.shares(self.server.audit()))
            .accounts(new.accounts())
            .kerberos(new.kerberos.clone().map(|Keys { keys, policy, .. }| (keys, policy)))
            .limits(configured::limits(&new.plan.config.limits));
        // A look at the keytab that begins after the reload is by the new configuration.
        self.newer_keys.note(&new.plan.config);
        let reviewed = self.server.reload(change);
        for key in self.loaded.plan.needs_restart(&new.plan) {
            tracing::warn!(target: "frevo::server", key, "this key has changed; restart the server to apply it");
        }
        warn(&new);
        self.discovery.tell(&new.plan);
        self.target_servers.tell(&self.server, &new);
        if let Some(cluster) = &self.cluster {
            cluster.reload(&new.plan.config);
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.reload(&new.plan.config);
        }
        self.admin.quotas.show(&new.plan.config);
        self.admin.not_in_force.note(new.not_served.clone());
        self.keytab_watch.note(keytab::path(&new.plan.config));
        if let Some(tls) = tls {
            self.certificates.put(&new.plan.config, Ok(tls));
        }
        let before = std::mem::replace(&mut self.loaded, new);
        self.renew_keytab();
        self.accept_folders(&before.shares);
        Ok(reviewed)
    }

    /// Takes what is at the paths of new and changed shares. A reload for another reason, such as
    /// log files that are renamed, does not say that a disk will not come back.
    fn accept_folders(&self, before: &[OpenShare]) {
        for share in &self.loaded.shares {
            let is_kept = before.iter().any(|before| before.section.has_same_keys(&share.section));
            let folders = share.folders();
            tokio::task::spawn_blocking(move || {
                for folder in folders {
                    if is_kept {
                        look_at_folder(&*folder, Look::Untimed);
                    } else {
                        accept_folder(&*folder);
                    }
                }
            });
        }
    }

    /// Gives the process that asks controllers the keytab as it is now.
    fn renew_keytab(&self) {
        if let Some(directory) = &self.directory {
            directory.renew_keytab(&self.loaded.plan.config);
        }
    }
}

/// Returns the memory that reading a configuration took, which is much with many links: the allocator keeps it
/// otherwise.
fn release_read() {
    tokio::task::spawn_blocking(frevo_net::buffer::release_free_memory);
}

/// The event of a reload that succeeded.
fn reloaded(reviewed: Reviewed) -> Event {
    let Reviewed { sessions, tree_connects, .. } = reviewed;
    let event = Event::new(Kind::Reload);
    if sessions + tree_connects == 0 {
        return event;
    }
    event.with("sessions", sessions as u64).with("connects", tree_connects as u64)
}
