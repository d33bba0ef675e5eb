//! A run of the server: start, signals, reload, stop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_posix::inherited::Inherited;
use frevo_server::audit::{Audit, Event, Kind, ShareAudit};
use frevo_server::config::{
    Identities, Look, ShareSection, accept_folder, look_at_folder, open_share,
};
use frevo_server::user_map::Mapped;
use frevo_server::{
    DiskState, Kick, Limits, NotEdited, Reload, Reviewed, Server, ServerBuilder, Settings, Share,
    ShareEdit, SharedAccounts, panics,
};
use frevo_store::Vfs;
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::arguments::Serve;
use crate::config_sources::Sources;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::keytab::{self, Keys};
use crate::logging::{self, Logging};
use crate::network_shares::NetworkShares;
use crate::{accounts, config_checks, machine_sid, state};

use super::account_reloads::{self, AccountReloads};
use super::admin_interface;
use super::confine::Confined;
use super::directory::Directory;
use super::discovery::Discovery;
use super::hello::Hello;
use super::keytab_watch::{self, KeytabWatch};
use super::listen::ListeningSockets;
use super::live_accounts::LiveAccounts;
use super::mount_events::{MountEvents, MountList};
use super::plan::Plan;
use super::run_accounts::{Logon, given_names};
use super::service_manager::{self, notify};
use super::share_edits::{self, Asked, Asking, Edits};
use super::share_guards::ShareGuards;
use super::signals::{Cause, Signals};
use super::take_over::Replaced;
use super::winbind::Winbind;

/// A share that is open, with what it was made of.
pub(super) struct OpenShare {
    pub(super) section: ShareSection,
    vfs: Arc<dyn Vfs>,
    identities: Identities,
    /// Another thread looks at its folder.
    is_looked_at: Arc<AtomicBool>,
}

/// The state that a reload replaces.
pub(super) struct Loaded {
    pub(super) plan: Plan,
    pub(super) logon: Logon,
    pub(super) shares: Vec<OpenShare>,
    pub(super) settings: Settings,
    kerberos: Option<Keys>,
}

impl Loaded {
    /// `guards` keep other servers from the folders of shares; none for a trial.
    fn new(
        plan: Plan,
        arguments: &Serve,
        guid: Guid,
        before: Option<(Logon, &[OpenShare])>,
        guards: Option<&ShareGuards>,
    ) -> Result<Self, Failure> {
        let (logon, shares) = match before {
            Some((logon, shares)) => (Some(logon), shares),
            None => (None, &[][..]),
        };
        let shares = open_shares(&plan, shares, guards)?;
        refuse_exposed(&plan)?;
        let logon = Logon::new(&plan, arguments, logon)?;
        let kerberos = keytab::read(&plan.config)?;
        let settings = settings(&plan, arguments, guid, &logon);
        Ok(Self { plan, logon, shares, settings, kerberos })
    }

    /// Reads the accounts again. A fault leaves the old ones.
    pub(super) fn read_accounts(&mut self, arguments: &Serve, guid: Guid) -> Done {
        refuse_exposed(&self.plan)?;
        self.logon = Logon::new(&self.plan, arguments, Some(self.logon.clone()))?;
        self.settings = settings(&self.plan, arguments, guid, &self.logon);
        Ok(())
    }

    pub(super) fn accounts(&self) -> SharedAccounts {
        let config = &self.plan.config;
        let configured = config.users.iter().map(|user| user.name.get_ref().as_str().to_owned());
        let run_user = self.logon.run_user.as_ref().map(|user| user.name.clone());
        let live = LiveAccounts::new(
            self.logon.accounts.clone(),
            self.plan.has_state.then(|| state::users_file_of(config)),
            configured.chain(run_user).collect(),
            accounts::realm(Some(config)),
        );
        Arc::new(Mapped::new(live, self.logon.user_map.clone()))
    }

    pub(super) fn shares(&self, audit: Option<&Audit>) -> Vec<Share> {
        let open = |share: &OpenShare| {
            let audit = audit.map(|audit| ShareAudit {
                audit: audit.clone(),
                operations: share.section.audited(),
            });
            let vfs = Arc::clone(&share.vfs);
            let id_map = Arc::clone(&self.settings.id_map);
            Share { audit, id_map, ..open_share(&share.section, vfs, share.identities.clone()) }
        };
        self.shares.iter().map(open).collect()
    }
}

/// Refuses secrets that a share shows, and files that others can change.
fn refuse_exposed(plan: &Plan) -> Done {
    let mut exposed = config_checks::secrets_in_shares(&plan.config, plan.has_state);
    exposed.extend(config_checks::changeable_by_others(&plan.config, plan.has_state));
    if exposed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Config, exposed.join("\nfrevo: ")))
}

fn settings(plan: &Plan, arguments: &Serve, guid: Guid, logon: &Logon) -> Settings {
    let mut settings = plan.config.settings(accounts::host_name().as_str(), guid);
    #[cfg(feature = "test-hooks")]
    {
        settings.test_hooks = arguments.test_hooks;
    }
    #[cfg(not(feature = "test-hooks"))]
    let _ = arguments;
    machine_sid::apply(&mut settings, &logon.accounts);
    settings
}

pub(super) async fn run(
    arguments: &Serve,
    plan: Plan,
    logging: &Logging,
    inherited: Inherited,
) -> Done {
    panics::watch(false);
    service_manager::connect();
    let guid = identity(arguments, &plan)?;
    let mut replaced = arguments.replace.map(Replaced::begin).transpose()?;
    let sockets = replaced.as_mut().map_or_else(Vec::new, Replaced::sockets);
    let doors = ListeningSockets::open(&plan.config.server.listen, sockets)?;
    if let Some(replaced) = replaced {
        // A server that could not start must not end the one that runs.
        Loaded::new(Plan::new(arguments)?, arguments, guid, None, None)?;
        replaced.end(plan.config.limits.limits().drain)?;
    }
    #[cfg(feature = "rdma")]
    super::rdma::prepare(&plan)?;
    let address = doors.best_address();
    let admin = admin_interface::prepare(&plan)?;
    let discovery = Discovery::start(&plan, &doors.addresses, guid);
    let domains = Domains { winbind: Winbind::start(&plan)?, directory: Directory::start(&plan)? };
    #[cfg(feature = "traces")]
    let collector = super::traces::Collector::find(&plan.config.traces)?;
    let (guards, mounts) = (ShareGuards::of(&plan.config), MountList::open());
    // No other thread runs yet: what starts from here on is confined too.
    let confined = Confined::begin(&plan, arguments)?;
    #[cfg(feature = "rdma")]
    let rdma = super::rdma::listen(&plan, arguments, &doors.addresses)?;
    let loaded = Loaded::new(plan, arguments, guid, None, Some(&guards))?;
    // A password file may have been one of them: a pipe of a shell.
    inherited.close();
    warn(&loaded);
    confined.warn();
    #[cfg(feature = "traces")]
    let _sending =
        collector.map(|collector| collector.start(&loaded.settings, logging)).transpose()?;
    let signals = Signals::new()?;
    let (asking, edits) = share_edits::channel();
    let directory = domains.directory.clone();
    let server = make_server(&loaded, asking, domains)?;
    #[cfg(feature = "rdma")]
    rdma.into_iter().for_each(|listener| server.listen_rdma(listener));
    server.start_cores().map_err(Failure::failed("cannot start the cores"))?;
    tell_unresolved(&server);
    let (account_asking, account_reloads) = account_reloads::channel();
    let _admin_socket = admin.start(&server, logging, Arc::new(account_asking))?;
    Hello { arguments, doors: &doors, address, confined: &confined }.say(&loaded, &server).await?;
    let mut keytab_watch = KeytabWatch::default();
    keytab_watch.note(keytab::path(&loaded.plan.config));
    Running {
        arguments,
        logging,
        guid,
        server,
        loaded,
        signals,
        confined,
        discovery,
        directory,
        edits,
        account_reloads,
        keytab_watch,
        guards,
        mounts: mounts.watch(),
    }
    .serve(doors)
    .await
}

/// The server's identity. It and the SID of the machine are kept before the process is confined.
fn identity(arguments: &Serve, plan: &Plan) -> Result<Guid, Failure> {
    if !plan.has_state {
        return state::random_guid();
    }
    let dir = state::dir_of(&plan.config);
    let is_new = !state::has_server_guid(&dir);
    let guid = state::server_guid(&dir)?;
    state::make_dir(&dir)?;
    let settings = plan.config.settings(accounts::host_name().as_str(), guid);
    let given = |accounts: &_| given_names(plan, arguments, accounts);
    machine_sid::keep(&plan.config, &settings, given, is_new);
    Ok(guid)
}

/// The processes that ask domain controllers in the server's place.
struct Domains {
    winbind: Option<Arc<Winbind>>,
    directory: Option<Arc<Directory>>,
}

/// Waits for the SIDs of names in rules of shares, since clients of before a restart come at once.
fn tell_unresolved(server: &Server) {
    let names = server.resolve_names();
    if !names.is_empty() {
        tracing::error!(target: "frevo::server", names = names.join(", "),
            "names of domains in rules of shares are not resolved; until they are, lists that deny \
             them refuse all users of domains, and lists that allow them let nobody in by them");
    }
}

/// Makes the server. Where a share is continuous, it takes up what an earlier run had open.
fn make_server(loaded: &Loaded, asking: Asking, domains: Domains) -> Result<Server, Failure> {
    let plan = &loaded.plan;
    let audit = start_audit(plan)?;
    let mut parts = Server::builder()
        .settings(loaded.settings.clone())
        .shares(loaded.shares(audit.as_ref()))
        .accounts(loaded.accounts())
        .share_editor(Arc::new(asking))
        .limits(Limits { descriptors: descriptors(), ..plan.config.limits.limits() })
        .cores(plan.config.server.cores.unwrap_or(0))
        .pin_cores(plan.config.server.pin_cores.unwrap_or(false));
    if let Some(winbind) = domains.winbind {
        parts = parts.domain_logons(winbind);
    }
    if let Some(directory) = domains.directory {
        parts = parts.domain_directory(directory);
    }
    if let Some(audit) = audit {
        parts = parts.audit(audit);
    }
    if let Some(Keys { keys, policy, .. }) = loaded.kerberos.clone() {
        parts = parts.kerberos(keys, policy);
    }
    let dir = state::dir_of(&plan.config);
    if plan.has_state {
        parts = with_handover(parts, &dir.join(state::HANDED_OVER_OPENS));
    }
    if !loaded.shares.iter().any(|share| share.section.continuous) {
        return parts.build().map_err(Failure::failed("cannot start the server"));
    }
    state::make_dir(&dir)?;
    let path = dir.join(state::PERSISTENT_OPENS);
    let what = || format!("cannot keep persistent handles in {}", path.display());
    let store = DiskState::open(&path).map_err(Failure::failed(what()))?;
    parts.state_store(Arc::new(store)).build().map_err(Failure::failed(what()))
}

/// Lets the server leave durable handles to the next one. It serves as well without.
fn with_handover(parts: ServerBuilder, path: &Path) -> ServerBuilder {
    match DiskState::open(path) {
        Ok(store) => parts.handover_store(Arc::new(store)),
        Err(error) => {
            tracing::warn!(target: "frevo::durable", file = %path.display(), %error,
                "durable handles will not outlive a restart");
            parts
        }
    }
}

struct Running<'a> {
    arguments: &'a Serve,
    logging: &'a Logging,
    guid: Guid,
    server: Server,
    loaded: Loaded,
    signals: Signals,
    confined: Confined,
    discovery: Discovery,
    directory: Option<Arc<Directory>>,
    edits: Edits,
    account_reloads: AccountReloads,
    keytab_watch: KeytabWatch,
    guards: ShareGuards,
    mounts: MountEvents,
}

impl Running<'_> {
    async fn serve(mut self, doors: ListeningSockets) -> Done {
        let mut is_stopping = false;
        let server = self.server.clone();
        let mut serving = std::pin::pin!(server.serve(doors.listeners));
        let version = env!("CARGO_PKG_VERSION");
        self.record(|| Event::new(Kind::Start).with("version", version));
        let refused = tokio::spawn(self.confined.tell_refused());
        print(b"ready\n")?;
        notify(&[NotifyState::Ready, NotifyState::Status("accepting connections")]);
        let mut looks = tokio::time::interval(keytab_watch::EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                served = &mut serving => {
                    refused.abort();
                    self.record(|| Event::new(Kind::Stop));
                    if let Some(audit) = self.server.audit() {
                        audit.finish();
                    }
                    return served.map_err(Failure::failed("cannot serve"));
                }
                Some(asked) = self.edits.recv() => {
                    let Asked { edit, by, answer } = asked;
                    let done = if is_stopping {
                        Err(NotEdited::Failed(String::from("the server stops")))
                    } else {
                        self.edit_shares(&edit)
                    };
                    if let (Ok(()), ShareEdit::Remove { name }) = (&done, edit) {
                        let server = self.server.clone();
                        tokio::spawn(async move { server.kick(&Kick::Share(name), &by).await });
                    }
                    // Its connection may be gone.
                    let _ = answer.send(done);
                }
                Some(asked) = self.account_reloads.recv() => {
                    let Self { loaded, server, arguments, guid, .. } = &mut self;
                    if let Some(reviewed) = asked.carry_out(loaded, server, arguments, *guid) {
                        self.record(|| reloaded(reviewed));
                    }
                }
                _ = looks.tick() => {
                    let config = &self.loaded.plan.config;
                    if let Some(keys) = self.keytab_watch.look(config, &self.server) {
                        self.loaded.kerberos = Some(keys);
                        self.renew_keytab();
                    }
                    self.look_at_folders(Look::Timed);
                }
                () = self.mounts.changed() => self.look_at_folders(Look::Untimed),
                cause = self.signals.next() => match (cause, is_stopping) {
                    (Cause::Stop, false) => {
                        is_stopping = true;
                        notify(&[NotifyState::Stopping]);
                        tracing::info!(target: "frevo::server", "stopping: finishing pending requests");
                        self.server.stop();
                    }
                    (Cause::Stop, true) => {
                        return Err(Failure::new(Exit::Failed, "stopped without finishing the pending requests"));
                    }
                    (Cause::Reload, false) => {
                        self.reload();
                    }
                    (Cause::Reload, true) => {}
                }
            }
        }
    }

    /// Compares the folders of all shares with what their paths lead to, beside this thread: a file
    /// system may not answer.
    fn look_at_folders(&self, why: Look) {
        for share in &self.loaded.shares {
            if share.is_looked_at.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (vfs, is_looked_at) = (Arc::clone(&share.vfs), Arc::clone(&share.is_looked_at));
            tokio::task::spawn_blocking(move || {
                look_at_folder(&*vfs, why);
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

    /// Reads the configuration again and returns true. On a fault it keeps the old configuration,
    /// logs the reason and returns false.
    fn reload(&mut self) -> bool {
        // systemd wants to see when the reload began.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(_) => notify(&[NotifyState::Reloading]),
        }
        if let Some(audit) = self.server.audit() {
            // Whoever rotates the file says so by this signal too.
            audit.reopen();
        }
        let reload = Event::new(Kind::Reload);
        let failed = |why: String| reload.clone().status(Status::UNSUCCESSFUL).with("reason", why);
        let done = panics::contained(|| self.try_reload());
        let is_done = matches!(done, Some(Ok(_)));
        let event = match done {
            Some(Ok(reviewed)) => {
                tracing::info!(target: "frevo::server", "configuration reloaded");
                reloaded(reviewed)
            }
            Some(Err(failure)) => {
                tracing::error!(target: "frevo::server",
                    "reload failed, the old configuration stays in force: {failure}");
                failed(failure.to_string())
            }
            None => {
                tracing::error!(target: "frevo::server",
                    "reload failed because of a bug; the old configuration stays in force; restart \
                     the server to apply the new one");
                failed(String::from("internal error"))
            }
        };
        self.record(|| event);
        notify(&[NotifyState::Ready]);
        is_done
    }

    /// Stores a change of the shares that were added over the network, and applies it. Undoes it
    /// when that fails.
    fn edit_shares(&mut self, edit: &ShareEdit) -> Result<(), NotEdited> {
        let failed = |failure: Failure| NotEdited::Failed(failure.to_string());
        let sources = self.arguments.config.as_deref().map(Sources::read).transpose();
        let sources = sources.map_err(failed)?;
        let shares = sources.and_then(|sources| NetworkShares::of_table(&sources.table()));
        let shares = shares.ok_or_else(|| {
            NotEdited::Forbidden(String::from(
                "share_roots in [server] names no folder below which shares may be added over the \
                 network; use frevo share, or set that key",
            ))
        })?;
        let before = shares.stored().map_err(failed)?.unwrap_or_default();
        let after = shares.edited(&before, &self.loaded.plan.config, edit)?;
        shares.write(&after).map_err(failed)?;
        let is_reloaded = self.reload();
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
            self.reload();
        }
        Err(NotEdited::Failed(String::from(
            "the configuration with this change could not be applied; the lines above say why",
        )))
    }

    fn try_reload(&mut self) -> Result<Reviewed, Failure> {
        let mut plan = Plan::new(self.arguments)?;
        self.confined.check_files(&plan, self.arguments)?;
        self.confined.leave_out(&mut plan.config.shares);
        // Everything that can fail comes before anything changes.
        let level = plan.config.server.log_level.clone();
        logging::filter(level.as_deref())?;
        let before = (self.loaded.logon.clone(), &*self.loaded.shares);
        let new = Loaded::new(plan, self.arguments, self.guid, Some(before), Some(&self.guards))?;
        self.logging.set_level(level.as_deref())?;
        let change = Reload::new()
            .settings(new.settings.clone())
            .shares(new.shares(self.server.audit()))
            .accounts(new.accounts())
            .kerberos(new.kerberos.clone().map(|Keys { keys, policy, .. }| (keys, policy)))
            .limits(new.plan.config.limits.limits());
        let reviewed = self.server.reload(change);
        for key in self.loaded.plan.needs_restart(&new.plan) {
            tracing::warn!(target: "frevo::server", key, "this key has changed; restart the server to apply it");
        }
        warn(&new);
        self.discovery.tell(&new.plan);
        self.keytab_watch.note(keytab::path(&new.plan.config));
        let before = std::mem::replace(&mut self.loaded, new);
        self.renew_keytab();
        self.accept_folders(&before.shares);
        Ok(reviewed)
    }

    /// Takes what is at the paths of new and changed shares. A reload for another reason, such as
    /// log files that are renamed, does not say that a disk will not come back.
    fn accept_folders(&self, before: &[OpenShare]) {
        for share in &self.loaded.shares {
            let is_kept = before.iter().any(|before| before.section == share.section);
            let vfs = Arc::clone(&share.vfs);
            tokio::task::spawn_blocking(move || {
                if is_kept {
                    look_at_folder(&*vfs, Look::Untimed);
                } else {
                    accept_folder(&*vfs);
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

/// The event of a reload that succeeded.
fn reloaded(reviewed: Reviewed) -> Event {
    let Reviewed { sessions, tree_connects, .. } = reviewed;
    let event = Event::new(Kind::Reload);
    if sessions + tree_connects == 0 {
        return event;
    }
    event.with("sessions", sessions as u64).with("connects", tree_connects as u64)
}

/// Opens the folders of all shares. The folder of an unchanged share stays open, so that its files
/// keep their share modes. A share without its folder, such as one on a disk that is not mounted,
/// does not keep the server from its other shares.
fn open_shares(
    plan: &Plan,
    before: &[OpenShare],
    guards: Option<&ShareGuards>,
) -> Result<Vec<OpenShare>, Failure> {
    let mut shares = Vec::new();
    for section in &plan.config.shares {
        let same = before.iter().find(|share| share.section.is_same_folder(section));
        let name = section.name.get_ref();
        let vfs = match same {
            Some(same) => Ok(Arc::clone(&same.vfs)),
            None => section.open_folder(),
        };
        let vfs = match vfs {
            Ok(vfs) => vfs,
            Err(fault) => {
                tracing::error!(target: "frevo::server", share = %name,
                    "the share is not served: {fault}; when that is mended, restart frevo");
                continue;
            }
        };
        if let Some(Err(why)) = guards.map(|guards| guards.take(section, &*vfs)) {
            tracing::error!(target: "frevo::server", share = %name,
                "the share is not served: {why}; then reload frevo");
            continue;
        }
        let identities = section
            .identities()
            .map_err(|why| Failure::new(Exit::Config, format!("share {name}: {why}")))?;
        let is_looked_at = same.map_or_else(Arc::default, |same| Arc::clone(&same.is_looked_at));
        shares.push(OpenShare { section: section.clone(), vfs, identities, is_looked_at });
    }
    Ok(shares)
}

fn warn(loaded: &Loaded) {
    for warning in config_checks::warnings(&loaded.plan.config) {
        tracing::warn!(target: "frevo::server", "{warning}");
    }
    for share in &loaded.shares {
        let name = share.section.name.get_ref().as_str();
        if let Some(warning) = machine_sid::foreign_lists(name, &*share.vfs, loaded.settings.sid())
        {
            tracing::warn!(target: "frevo::server", "{warning}");
        }
    }
    let known: Vec<String> =
        loaded.logon.accounts.entries().map(|entry| fold_name(&entry.name)).collect();
    for warning in config_checks::unknown_users(&loaded.plan.config, &known) {
        tracing::warn!(target: "frevo::server", "{warning}");
    }
    if let Some(keys) = &loaded.kerberos {
        tracing::info!(target: "frevo::server", "Kerberos: tickets for {keys} are accepted");
        if let Some(warning) = keys.other_name(&loaded.settings.server_name) {
            tracing::warn!(target: "frevo::server", "{warning}");
        }
    }
    if loaded.logon.names().is_empty() && loaded.kerberos.is_none() {
        tracing::warn!(target: "frevo::server", "no user can log on; run frevo user add NAME");
    }
    if loaded.shares.is_empty() {
        tracing::warn!(target: "frevo::server", "there are no shares; add a [[share]], then reload");
    }
}

/// Starts the audit log, if the configuration has one.
fn start_audit(plan: &Plan) -> Result<Option<Audit>, Failure> {
    let section = &plan.config.audit;
    if !section.is_kept() {
        return Ok(None);
    }
    let sinks = section.sinks().map_err(|why| Failure::new(Exit::Config, why))?;
    let audit = Audit::start(sinks);
    audit.map(Some).map_err(Failure::failed("cannot start the audit log"))
}

/// The number of descriptors that the process may have; none without a limit.
fn descriptors() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}
