//! Samba's `wbinfo`, with a time limit.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time for one run.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes of what it says.
const OUTPUT_BYTES: u64 = 1 << 20;

/// Runs `wbinfo` with one argument and returns what it says. A run that takes too long is ended.
pub(super) fn wbinfo(argument: &str) -> io::Result<String> {
    let mut command = command("wbinfo");
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::piped());
    output(command.spawn()?, PATIENCE)
}

/// A program of the system.
pub(super) fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin").env("LC_ALL", "C");
    command.stderr(Stdio::piped());
    command
}

/// Waits for the end of a program for `patience` at most, and returns what it said.
fn output(mut child: Child, patience: Duration) -> io::Result<String> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Threads read the output, because the program would stop when its pipes are full.
    let said = reader(stdout)?;
    let errors = reader(stderr)?;
    let end = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= end {
            // If the process has ended already, `kill` fails, which does not matter.
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::new(io::ErrorKind::TimedOut, "wbinfo hangs"));
        }
        thread::sleep(LOOK);
    };
    let text = |reader: thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    if !status.success() {
        let errors = text(errors);
        let said = String::from_utf8_lossy(&errors);
        return Err(io::Error::other(format!("wbinfo: {}", said.trim().replace('\n', "; "))));
    }
    String::from_utf8(text(said)).map_err(io::Error::other)
}

/// Reads a pipe to its end.
fn reader(pipe: Option<impl io::Read + Send + 'static>) -> io::Result<thread::JoinHandle<Vec<u8>>> {
    thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // If reading fails, the output that was read before the error is used.
            let _ = pipe.take(OUTPUT_BYTES).read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = command("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn what_a_program_says() {
        let long = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done";
        assert_eq!(output(shell(long), PATIENCE * 10).unwrap().len(), 220_000);
        let failed = output(shell("echo a; echo b >&2; exit 1"), PATIENCE).unwrap_err();
        assert_eq!(failed.to_string(), "wbinfo: b");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let child = shell("exec sleep 600");
        let id = child.id();
        let hangs = output(child, Duration::from_millis(50)).unwrap_err();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
