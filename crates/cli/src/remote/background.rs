//! `mount` in the background: starts this program again, which reports when it is ready.
//!
//! The background process asks for the password and prints errors itself, on the terminal
//! that it leaves when the share is mounted.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::arguments::Mount;
use crate::exit::{Done, Exit, Failure};
use crate::passwords;

/// The line that the background process writes to its standard output when the share is mounted.
const READY: &str = "ready";

/// Starts the background process, and returns when the share is mounted.
pub(super) fn start(_: &Mount) -> Done {
    let program =
        std::env::current_exe().map_err(Failure::failed("cannot find the program frevo"))?;
    let mut command = Command::new(program);
    command.args(super::mount_options::command_line()?.arguments).arg("--detach");
    // The new process gets the password in its environment, and removes it from there when it
    // starts.
    command.envs(passwords::for_environment().map(|value| (passwords::VARIABLE, value)));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::failed("cannot start in the background"))?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        // If the new process has ended, nothing is read and the line stays empty.
        let _ = BufReader::new(out).read_line(&mut said);
    }
    if said.trim() == READY {
        return Ok(());
    }
    // The mount process has printed the reason for its failure, so only its exit status is passed
    // on.
    let status =
        child.wait().map_err(Failure::failed("cannot get the exit status of the mount process"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    std::process::exit(code.filter(|code| *code != 0).unwrap_or(Exit::Failed as u8).into());
}

/// Reports to the starting process that the share is mounted, and leaves the terminal.
pub(super) fn ready() -> Done {
    detach().map_err(Failure::failed("cannot go to the background"))
}

fn detach() -> std::io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    // In a session of its own the process gets no Ctrl-C and no hangup of the terminal.
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    let mut out = std::io::stdout();
    // The starting process reads this line, but it may have ended already, so an error is ignored.
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(())
}
