//! A run of the server: start, signals, reload, stop.

use std::path::Path;
use std::sync::Arc;

use frevo_posix::inherited::Inherited;
use frevo_server::account_directory::AccountDirectory;
use frevo_server::audit::Audit;
use frevo_server::{DiskState, Limits, Server, ServerBuilder, panics};
use frevo_store::StateStore;
use frevo_wire::dtyp::Guid;

use crate::arguments::Serve;
use crate::exit::{Done, Exit, Failure};
use crate::keytab::{self, Keys};
use crate::logging::Logging;
use crate::share_guards::ShareGuards;
use crate::{accounts, configured, machine_sid, state};

use super::admin_interface::{self, Shown};
use super::cluster;
use super::confine::Confined;
use super::directory::Directory;
use super::discovery::Discovery;
use super::hello::Hello;
use super::keytab_watch::{KeytabWatch, NewerKeys};
use super::ldap_directory;
use super::listeners::Listeners;
use super::loaded::{Loaded, OpenShare, warn};
use super::mount_events::MountList;
use super::plan::Plan;
use super::quic;
use super::rpc::RpcSockets;
use super::run_accounts::given_names;
use super::running::Running;
use super::scan_results::ScanResults;
use super::service_manager;
use super::share_edits::{self, Asking};
use super::signals::Signals;
use super::snapshots;
use super::take_over::Replaced;
use super::target_servers::TargetServers;
use super::winbind::Winbind;

pub(super) async fn run(
    arguments: &Serve,
    mut plan: Plan,
    logging: &Logging,
    inherited: Inherited,
) -> Done {
    panics::watch(false);
    service_manager::connect();
    cluster::fetch_domain_keys(&plan.config);
    let guid = identity(arguments, &plan)?;
    let mut doors = open_doors(&plan, arguments, guid)?;
    let certificates = doors.quic.watch(&plan.config);
    let rpc = RpcSockets::open(&plan, &doors.sockets.addresses)?;
    let admin = admin_interface::prepare(&plan)?;
    let discovery = Discovery::start(&plan, &doors.sockets.addresses, guid);
    let target_servers = TargetServers::start(&plan);
    let _scan_results = ScanResults::prepare(&plan)?;
    let domains = Domains::start(&plan)?;
    #[cfg(feature = "traces")]
    let collector = super::traces::Collector::find(&plan.config.traces)?;
    let cluster = cluster::prepare(&plan, &doors.sockets.addresses)?;
    let snapshots = snapshots::prepare(&mut plan);
    let (guards, mounts) = (ShareGuards::of(&plan.config), MountList::open());
    // The process still has one thread only, so threads that start later inherit the confinement.
    let confined = Confined::begin(&plan, arguments)?;
    let listeners = doors.open(&plan, arguments)?;
    let mut loaded = Loaded::new(plan, arguments, guid, None, Some(&guards))?;
    loaded.directory.clone_from(&domains.accounts);
    // An inherited descriptor may be the pipe with the password, which has been read now, so all
    // are closed.
    inherited.close();
    warn_at_start(&loaded, &confined);
    #[cfg(feature = "traces")]
    let _sending =
        collector.map(|collector| collector.start(&loaded.settings, logging)).transpose()?;
    let (signals, (asking, edits)) = (Signals::new()?, share_edits::channel());
    let newer_keys = NewerKeys::of(&loaded.plan.config);
    let (server, cluster) = make_server(&loaded, asking.clone(), &domains, &newer_keys, cluster)?;
    server.start_cores().map_err(Failure::failed("cannot start the cores"))?;
    let cluster = cluster.map(|cluster| cluster.start(&server, arguments, asking)).transpose()?;
    tell_unresolved(&server);
    let snapshots = snapshots.map(|prepared| prepared.start(&server)).transpose()?;
    let rpc_port = rpc.serve(&server)?;
    let shown = Shown { arguments, cluster: cluster.as_ref(), snapshots: snapshots.as_ref() };
    let admin = admin.start(&server, logging, shown, &loaded)?;
    Hello { arguments, doors: &doors, rpc_port, confined: &confined }.say(&loaded, &server).await?;
    Running {
        arguments,
        logging,
        guid,
        server,
        certificates,
        keytab_watch: KeytabWatch::of(keytab::path(&loaded.plan.config)),
        loaded,
        signals,
        confined,
        discovery,
        target_servers,
        directory: domains.directory,
        edits,
        admin,
        newer_keys,
        guards,
        mounts: mounts.watch(),
        cluster,
        snapshots,
    }
    .serve(listeners)
    .await
}

fn warn_at_start(loaded: &Loaded, confined: &Confined) {
    warn(loaded);
    confined.warn();
}

/// Opens the sockets of the server, in place of those of an old one.
fn open_doors(plan: &Plan, arguments: &Serve, guid: Guid) -> Result<Listeners, Failure> {
    let mut replaced = arguments.replace.map(Replaced::begin).transpose()?;
    let sockets = replaced.as_mut().map_or_else(Vec::new, Replaced::sockets);
    let mut doors = Listeners::prepare(plan, sockets)?;
    // An old server goes on if the certificates cannot be read.
    quic::check(&plan.config)?;
    replaced.map(|replaced| end(replaced, plan, arguments, guid)).transpose()?;
    doors.prepare_quic(plan)?;
    Ok(doors)
}

/// Ends the old server. The new configuration is loaded first: the old server ends only if that succeeds.
fn end(replaced: Replaced, plan: &Plan, arguments: &Serve, guid: Guid) -> Done {
    Loaded::new(Plan::new(arguments)?, arguments, guid, None, None)?;
    replaced.end(configured::limits(&plan.config.limits).drain)
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
    let settings = configured::settings(&plan.config, accounts::host_name().as_str(), guid);
    let given = |accounts: &_| given_names(plan, arguments, accounts);
    machine_sid::keep(&plan.config, &settings, given, is_new);
    Ok(guid)
}

/// The processes that ask domain controllers, and a directory of accounts, in the server's place.
struct Domains {
    winbind: Option<Arc<Winbind>>,
    directory: Option<Arc<Directory>>,
    accounts: Option<Arc<AccountDirectory>>,
}

impl Domains {
    fn start(plan: &Plan) -> Result<Self, Failure> {
        let (winbind, directory) = (Winbind::start(plan)?, Directory::start(plan)?);
        Ok(Self { winbind, directory, accounts: ldap_directory::start(plan)? })
    }
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
fn make_server(
    loaded: &Loaded,
    asking: Asking,
    domains: &Domains,
    newer_keys: &Arc<NewerKeys>,
    cluster: Option<cluster::Prepared>,
) -> Result<(Server, Option<cluster::Ready>), Failure> {
    let plan = &loaded.plan;
    let audit = start_audit(plan)?;
    let mut parts = Server::builder()
        .settings(loaded.settings.clone())
        .shares(loaded.shares(audit.as_ref()))
        .accounts(loaded.accounts())
        .share_editor(Arc::new(asking))
        .key_source(Arc::<NewerKeys>::clone(newer_keys))
        .limits(Limits { descriptors: descriptors(), ..configured::limits(&plan.config.limits) })
        .cores(plan.config.server.cores.unwrap_or(0))
        .pin_cores(plan.config.server.pin_cores.unwrap_or(false));
    if let Some(accounts) = domains.accounts.clone() {
        parts = parts.account_directory(accounts);
    }
    if let Some(winbind) = domains.winbind.clone() {
        parts = parts.domain_logons(winbind);
    }
    if let Some(directory) = domains.directory.clone() {
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
    let local = local_store(loaded, &dir)?;
    let Some(cluster) = cluster else {
        let parts = match local {
            Some(store) => parts.state_store(store),
            None => parts,
        };
        return Ok((parts.build().map_err(Failure::failed("cannot start the server"))?, None));
    };
    let ready = cluster.ready(local)?;
    let server = ready.seat(parts).build();
    Ok((server.map_err(Failure::failed("cannot start the server"))?, Some(ready)))
}

/// The store of persistent handles in the shares that are this server's alone. None if no such share is
/// continuous.
fn local_store(loaded: &Loaded, dir: &Path) -> Result<Option<Arc<dyn StateStore>>, Failure> {
    let keeps = |share: &OpenShare| share.section.continuous && !share.section.cluster;
    if !loaded.shares.iter().any(keeps) {
        return Ok(None);
    }
    state::make_dir(dir)?;
    let path = dir.join(state::PERSISTENT_OPENS);
    let what = || format!("cannot keep persistent handles in {}", path.display());
    let store = DiskState::open(&path).map_err(Failure::failed(what()))?;
    Ok(Some(Arc::new(store)))
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

/// Starts the audit log, if the configuration has one.
fn start_audit(plan: &Plan) -> Result<Option<Audit>, Failure> {
    let section = &plan.config.audit;
    if !section.is_kept() {
        return Ok(None);
    }
    let sinks = configured::audit::sinks(section).map_err(|why| Failure::new(Exit::Config, why))?;
    let audit = Audit::start(sinks);
    audit.map(Some).map_err(Failure::failed("cannot start the audit log"))
}

/// The number of descriptors that the process may have; none without a limit.
fn descriptors() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}
