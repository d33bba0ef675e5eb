//! `mount`: a share as a folder, until fusermount3 -u, SIGTERM or, in the
//! foreground, Ctrl-C.

use std::path::Path;
use std::time::Duration;

use frevo_client::Share;
use frevo_config::LogFormat;
use frevo_mount::{MountError, Mounted, Settings, Unmount};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::arguments::Mount;
use super::background;
use super::channels;
use super::location::Url;
use super::logon::failed;
use super::mount_status;
use super::spelling;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::logging::Logging;
use crate::plural::counted;

/// How long requests under way are waited for once it is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Mounts; in the foreground waits until it is unmounted.
pub(super) fn run(arguments: &Mount) -> Done {
    if let Some(folder) = &arguments.status {
        return mount_status::tell(folder.as_deref(), arguments.connection.json);
    }
    let (Some(url), Some(folder)) = (&arguments.url, &arguments.folder) else {
        return Err(Failure::new(Exit::Usage, "name a share and a folder"));
    };
    #[cfg(feature = "smb1")]
    if arguments.connection.is_over_smb1(url) {
        return Err(Failure::new(Exit::Usage, "a share is not mounted by SMB1; copy its files"));
    }
    if arguments.fake {
        // With `--fake` only the options are checked, and nothing is mounted.
        return Ok(());
    }
    if !arguments.foreground && !arguments.detach {
        return background::start(arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start threads"))?;
    let done = runtime.block_on(mount(arguments, url, folder));
    runtime.shutdown_timeout(LAST_WORDS);
    done
}

async fn mount(arguments: &Mount, source: &Url, place: &Path) -> Done {
    start_logging(arguments)?;
    let refused = |error| refused(place, error);
    // The folder is checked first, so that the user is not asked for a password in vain.
    frevo_mount::check_folder(place).map_err(refused)?;
    let mut signals = Signals::new().map_err(Failure::failed("cannot wait for signals"))?;
    let Source { asked, share, url } = tokio::select! {
        found = reach(arguments, source) => found?,
        () = signals.next() => return Err(Failure::new(Exit::Interrupted, "interrupted")),
    };
    let kept = share.clone();
    let path = if share.is_posix() { spelling::exact(&url.path) } else { url.into_path() };
    let mut mounted = frevo_mount::mount(share, &path, place, settings(arguments, &asked))
        .await
        .map_err(refused)?;
    let folder = mounted.folder().display().to_string();
    if arguments.detach {
        background::ready()?;
    } else {
        tell(format_args!("{asked} is mounted on {folder}; Ctrl-C or fusermount3 -u unmounts it"));
    }
    let ended = tokio::select! {
        ended = wait(&mut mounted, &mut signals) => ended,
        never = channels::follow() => match never {},
    };
    channels::tell_sums();
    // If the server does not answer the logoff in time, it will end the session by itself later.
    let _ = tokio::time::timeout(LAST_WORDS, kept.log_off()).await;
    ended?;
    tell(format_args!("{folder} is unmounted"));
    Ok(())
}

/// The directory to mount.
struct Source {
    /// As it was asked for, in the snapshot of `--as-of`.
    asked: Url,
    share: Share,
    /// In the share.
    url: Url,
}

async fn reach(arguments: &Mount, source: &Url) -> Result<Source, Failure> {
    let (connection, posix) = (&arguments.connection, !arguments.no_posix);
    let asked = arguments.as_of.url(connection, source, posix).await?;
    let (share, url) = connection.reach_with(&asked, posix).await?;
    Ok(Source { asked, share, url })
}

/// Logs to the journal where standard error is not read.
fn start_logging(arguments: &Mount) -> Done {
    let level = Some(&*arguments.log_level);
    if let Some(file) = &arguments.log_file {
        return Logging::start_in(file, level).map(drop);
    }
    if arguments.detach && Logging::start(LogFormat::Journald, level).is_ok() {
        return Ok(());
    }
    Logging::start(LogFormat::Text, level).map(drop)
}

/// Until it is unmounted by whoever.
async fn wait(mounted: &mut Mounted, signals: &mut Signals) -> Done {
    loop {
        tokio::select! {
            ended = mounted.ended() => return ended.map_err(Failure::failed("the mount ended")),
            () = signals.next() => {}
        }
        let folder = mounted.folder().display().to_string();
        if mounted.is_over() {
            let lost = mounted.not_saved();
            return Err(Failure::new(
                Exit::Interrupted,
                format!(
                    "{folder} is unmounted; the server does not answer, so {} of written data \
                     could not be saved",
                    counted(lost, "byte")
                ),
            ));
        }
        let unmounted = tokio::select! {
            done = mounted.unmount() => done,
            // A second signal ends the wait for unsent data, and that data is lost.
            () = signals.next() => continue,
        };
        match unmounted {
            Ok(Unmount::Done) => {}
            Ok(Unmount::Busy) => tell(format_args!(
                "{folder} is in use and stays mounted; all written data is on the server. End the \
                 programs that use it (fuser -vm {folder}) and try again"
            )),
            Err(error) => tell(format_args!("cannot unmount {folder}: {error}")),
        }
    }
}

fn settings(arguments: &Mount, url: &Url) -> Settings {
    let uid = arguments.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let gid = arguments.gid.unwrap_or_else(|| rustix::process::getegid().as_raw());
    let default = Settings::of(uid, gid);
    let left = arguments.umask.map(|umask| 0o777 & !umask);
    Settings {
        // A snapshot cannot be changed, so it is mounted read-only.
        read_only: arguments.read_only || url.snapshot().is_some(),
        file_mode: arguments.file_mode.or(left).unwrap_or(default.file_mode),
        dir_mode: arguments.dir_mode.or(left).unwrap_or(default.dir_mode),
        posix: !arguments.no_posix,
        cache: !arguments.no_cache,
        allow_other: arguments.allow_other,
        no_exec: arguments.noexec,
        attr_timeout: arguments.attr_timeout.map_or(default.attr_timeout, Duration::from_secs_f64),
        ..default
    }
}

fn refused(folder: &Path, error: MountError) -> Failure {
    match error {
        MountError::Server(error) => failed(error),
        MountError::NotADirectory(_) => Failure::new(Exit::NotFound, error.to_string()),
        MountError::Folder(..) if !folder.exists() => {
            Failure::new(Exit::NotFound, error.to_string())
        }
        error => Failure::new(Exit::Failed, error.to_string()),
    }
}

/// The signals that ask for the unmount.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
