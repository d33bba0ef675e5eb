//! `mount` in the background: this program once more, which says when it is ready.
//!
//! It asks for the password itself and says itself what goes wrong, at the terminal
//! that it leaves when the share is mounted.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::arguments::Mount;
use crate::exit::{Done, Exit, Failure};

/// What it says on its standard output, once.
const READY: &str = "ready";

/// Starts it, and returns when the share is mounted.
pub(super) fn start(_: &Mount) -> Done {
    let program =
        std::env::current_exe().map_err(Failure::failed("cannot find the program frevo"))?;
    let mut child = Command::new(program)
        .args(super::mount_options::arguments())
        .arg("--detach")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::failed("cannot start in the background"))?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        // Nothing at all when it ended.
        let _ = BufReader::new(out).read_line(&mut said);
    }
    if said.trim() == READY {
        return Ok(());
    }
    // It has said why.
    let status =
        child.wait().map_err(Failure::failed("cannot get the exit status of the mount process"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    std::process::exit(code.filter(|code| *code != 0).unwrap_or(Exit::Failed as u8).into());
}

/// Tells who started this program that the share is mounted, and leaves his terminal.
pub(super) fn ready() -> Done {
    detach().map_err(Failure::failed("cannot go to the background"))
}

fn detach() -> std::io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    // A session of its own: no Ctrl-C and no hang-up of that terminal concerns it.
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    let mut out = std::io::stdout();
    // Whoever it was may have gone.
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(())
}
