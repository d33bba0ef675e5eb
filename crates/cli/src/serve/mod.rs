//! `frevo serve`.

mod account_reloads;
mod admin_interface;
pub(crate) mod ask_directory;
pub(crate) mod ask_ldap;
pub(crate) mod ask_winbind;
mod cluster;
mod config_reloads;
pub(crate) mod confine;
pub(crate) mod directory;
mod directory_accounts;
pub(crate) mod discovery;
pub(crate) mod hands;
mod hello;
mod keytab_watch;
mod ldap_directory;
pub(crate) mod listen;
mod listeners;
mod live_accounts;
mod loaded;
mod managing;
mod mount_events;
mod plan;
pub(crate) mod probe_targets;
pub(crate) mod quic;
mod quotas;
mod rdma;
mod rpc;
mod run;
pub(crate) mod run_accounts;
mod running;
pub(crate) mod scan_connector;
mod scan_results;
#[cfg(feature = "traces")]
pub(crate) mod send_traces;
mod service_manager;
mod share_edits;
mod signals;
pub(crate) mod snapshot_hands;
pub(crate) mod snapshots;
mod start_screen;
mod take_over;
mod target_servers;
#[cfg(feature = "traces")]
mod traces;
mod winbind;

use frevo_posix::inherited::Inherited;

use crate::arguments;
use crate::exit::{Done, Failure};
use crate::logging::Logging;

use self::plan::Plan;

pub(crate) fn run(arguments: &arguments::Serve) -> Done {
    // A test of upgrades has this program stand for the next version, beside one that does not.
    #[cfg(feature = "test-hooks")]
    if std::env::var_os("FREVO_TEST_NEXT_VERSION").is_some() {
        frevo_store::state::be_the_next_version();
    }
    // The modes of files in shares come from `file_mode` and `directory_mode`, and all other files
    // are created with the mode that they need, so the umask is not used.
    rustix::process::umask(rustix::fs::Mode::empty());
    frevo_net::buffer::bound_free_memory();
    let inherited = Inherited::note(listen::passed_descriptors());
    let plan = Plan::new(arguments)?;
    confine::start_name_service(&plan)?;
    let done = run_beside_name_service(arguments, plan, inherited);
    frevo_posix::name_service::finish();
    done
}

fn run_beside_name_service(arguments: &arguments::Serve, plan: Plan, inherited: Inherited) -> Done {
    let server = &plan.config.server;
    let format = server.log.unwrap_or(frevo_config::LogFormat::Text);
    let logging = Logging::start(format, server.log_level.as_deref())?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    let done = runtime.block_on(run::run(arguments, plan, &logging, inherited));
    // After a second Ctrl-C some cores may still be running. The runtime ends without waiting for
    // them.
    runtime.shutdown_background();
    done
}

/// Every open file of every client is a descriptor; the soft limit is made for
/// programs that use select(2).
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit of open files cannot be raised, it stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
}
