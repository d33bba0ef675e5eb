//! The commands that use a server: `ls`, `get`, `put` and so on.

mod acl;
mod ancestry;
pub(crate) mod arguments;
mod as_of;
pub(crate) mod attrib;
mod background;
mod bandwidth;
pub(crate) mod capture;
mod cat;
mod certificates;
pub(crate) mod channels;
mod colors;
pub(crate) mod completion;
pub(crate) mod connection_options;
mod copy_plan;
mod cp;
mod dfs_links;
mod directory_times;
mod disk_usage;
mod dos_attributes;
mod endpoint;
mod equality;
mod failures;
pub(crate) mod filter;
mod get;
mod links;
mod listing;
mod local_directories;
mod local_names;
pub(crate) mod location;
pub(crate) mod logon;
mod long_path;
mod lost_answers;
mod mount;
pub(crate) mod mount_options;
mod mount_status;
mod name_collisions;
mod namespace;
mod nodes;
pub(crate) mod output;
mod overlap;
mod pacing;
mod parallel_sessions;
mod passwd;
pub(crate) mod progress;
mod put;
mod queries;
mod remove;
mod report;
mod restore;
#[cfg(test)]
mod round_trips;
mod saved;
mod secret_service;
mod shadow_copies;
#[cfg(feature = "smb1")]
mod smb1;
mod sparse;
mod spelling;
mod sync;
mod target;
mod tickets;
mod transfer;
mod url_lines;
mod waiting;
mod walk;
mod wildcards;
mod witnesses;

use arguments::Verb;
use connection_options::{Application, Connection};
use location::Url;
use namespace::Replaces;

use crate::console::tell;
use crate::exit::{Done, Exit, Failure};

/// The environment variable with the number of threads for encryption; unset: one per core.
const HELPERS: &str = "FREVO_CRYPTO_THREADS";

/// Turns for the remaining tasks at the end.
const LAST_TURNS: usize = 8;

/// Runs a command until it ends or Ctrl-C.
pub(crate) fn run(verb: &Verb) -> Done {
    logon::open_as(verb.application().and_then(Application::instance));
    match verb {
        // `mount` handles signals by itself, so no handler is installed for it.
        Verb::Mount(arguments) => mount::run(arguments),
        verb => {
            let done = block_on(interrupted(verb), dispatch(verb));
            if done.is_err()
                && let Some(note) = transfer::parts::note()
            {
                progress::clear();
                tell(note);
            }
            done.and_then(|()| output::unwritten())
        }
    }
}

/// Lists the snapshots of a file or directory.
pub(crate) fn snapshots(connection: &Connection, url: &Url) -> Done {
    logon::open_as(None);
    let done = block_on("interrupted", queries::snapshots(connection, url));
    done.and_then(|()| output::unwritten())
}

/// Has a server make a shadow copy of a share.
pub(crate) fn create_shadow_copy(connection: &Connection, url: &Url) -> Done {
    logon::open_as(None);
    let interrupted = "interrupted; the server may have made the snapshot";
    let done = block_on(interrupted, shadow_copies::create(connection, url));
    done.and_then(|()| output::unwritten())
}

/// Has a server delete the shadow copy that a share serves.
pub(crate) fn delete_shadow_copy(connection: &Connection, url: &Url, set: &str) -> Done {
    logon::open_as(None);
    block_on("interrupted", shadow_copies::delete(connection, url, set))
}

/// The message after Ctrl-C.
const fn interrupted(verb: &Verb) -> &'static str {
    match verb {
        Verb::Get(_) | Verb::Put(_) | Verb::Cp(_) | Verb::Sync(_) | Verb::Restore(_) => {
            "interrupted; incomplete copies are kept as *.frevo-part, and the same command \
             continues them"
        }
        _ => "interrupted",
    }
}

/// Runs `work` until it ends or Ctrl-C: on one thread, whose cache keeps the data it moves,
/// with further threads for long work.
pub(crate) fn block_on<T>(
    interrupted: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let helpers = std::env::var(HELPERS).ok().and_then(|count| count.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(pacing::rest)
        .max_blocking_threads(helpers.unwrap_or(cores).max(1))
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    let done = runtime.block_on(async {
        let done = tokio::select! {
            done = work => {
                // Background tasks close dropped files. Yielding lets them send their requests
                // before the runtime ends.
                for _ in 0..LAST_TURNS {
                    tokio::task::yield_now().await;
                }
                done
            }
            never = waiting::tell_of_losses() => match never {},
            _ = tokio::signal::ctrl_c() => {
                Err(Failure::new(Exit::Interrupted, interrupted))
            }
        };
        channels::tell_sums();
        logon::log_off().await;
        done
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    done
}

async fn dispatch(verb: &Verb) -> Done {
    match verb {
        Verb::Ls(ls) => listing::ls(ls).await,
        Verb::Tree { connection, as_of, url, depth } => {
            let url = &as_of.url(connection, url, false).await?;
            listing::tree(connection, url, *depth).await
        }
        Verb::Find(find) => listing::find(find).await,
        Verb::Df { connection, urls, exact } => disk_usage::df(connection, urls, *exact).await,
        Verb::Du(du) => disk_usage::du(du).await,
        Verb::Attrib(arguments) => attrib::attrib(arguments).await,
        Verb::Stat { connection, as_of, urls, utc } => {
            let urls = &as_of.urls(connection, urls).await?;
            listing::stat(connection, urls, *utc).await
        }
        Verb::Cat { connection, as_of, urls } => {
            let urls = &as_of.urls(connection, urls).await?;
            cat::cat(connection, urls, None).await
        }
        Verb::Get(get) => get::get(get).await,
        Verb::Put(put) => put::put(put).await,
        Verb::Cp(cp) => cp::cp(cp).await,
        Verb::Mv { connection, from, to, no_replace, force } => {
            let replaces = match (no_replace, force) {
                (true, _) => Replaces::Nothing,
                (_, true) => Replaces::All,
                _ => Replaces::Writable,
            };
            namespace::mv(connection, from, to, replaces).await
        }
        Verb::Rm(rm) => remove::rm(rm).await,
        Verb::Mkdir { connection, urls, parents } => {
            namespace::mkdir(connection, urls, *parents).await
        }
        Verb::Restore(arguments) => restore::restore(arguments).await,
        Verb::Sync(sync) => sync::sync(sync).await,
        Verb::Mount(_) => Ok(()),
        Verb::Login { connection, url, store } => {
            saved::login(connection, url.as_ref(), *store).await
        }
        Verb::Logout { url } => saved::logout(url),
        Verb::CompleteUrl { connection, word } => completion::complete(connection, word).await,
        Verb::Shares { connection, url, all } => queries::shares(connection, url, *all).await,
        Verb::Watch { connection, url, recursive } => {
            queries::watch(connection, url, *recursive).await
        }
        Verb::Acl(arguments) => acl::acl(arguments).await,
        Verb::Passwd { connection, url } => passwd::passwd(connection, url).await,
    }
}
