//! Samba's `wbinfo`, with a time limit.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use frevo_wire::dtyp::Sid;

/// Time for one run.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes of what it says.
const OUTPUT_BYTES: u64 = 1 << 20;

/// Runs `wbinfo` with one argument and returns what it says. A run that takes too long is ended.
pub(crate) fn wbinfo(argument: &str) -> io::Result<String> {
    let mut command = command("wbinfo");
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::piped());
    output(command.spawn()?, PATIENCE)
}

/// Runs `wbinfo` with a question that may have no answer.
pub(crate) fn wbinfo_of(argument: &str) -> io::Result<Option<String>> {
    known(wbinfo(argument))
}

/// The answer to a question that may have none.
pub(crate) fn known(said: io::Result<String>) -> io::Result<Option<String>> {
    match said {
        Ok(said) => Ok(Some(said)),
        Err(error) if error.kind() == io::ErrorKind::Other => Ok(None),
        Err(error) => Err(error),
    }
}

/// The domain that winbind is a member of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnDomain {
    pub(crate) name: String,
    /// The DNS name; empty where winbind does not tell it.
    pub(crate) dns_name: String,
    pub(crate) sid: Sid,
}

/// Asks winbind for its own domain.
pub(crate) fn own_domain() -> io::Result<Option<OwnDomain>> {
    let Some(name) = wbinfo_of("--own-domain")? else { return Ok(None) };
    let name = name.trim().to_owned();
    let said = wbinfo_of(&domain_info(&name))?;
    Ok(said.as_deref().and_then(|said| told_domain(said, name)))
}

/// The question about a domain that [`told_domain`] reads the answer to.
pub(crate) fn domain_info(name: &str) -> String {
    format!("--domain-info={name}")
}

/// Reads the lines `SID : S-1-5-21-...` and `Alt_Name : a.test` of `wbinfo --domain-info`.
pub(crate) fn told_domain(said: &str, name: String) -> Option<OwnDomain> {
    let lines = said.lines().filter_map(|line| line.split_once(':'));
    let value = |wanted: &str| {
        let mut lines = lines.clone();
        lines.find(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim())
    };
    let sid = value("SID")?.parse().ok()?;
    let dns_name = value("Alt_Name").unwrap_or_default().to_owned();
    Some(OwnDomain { name, dns_name, sid })
}

/// A program of the system.
pub(crate) fn command(name: &str) -> Command {
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
    fn the_domain_of_winbind() {
        let said = "Name              : A\nAlt_Name          : a.test\nSID               : \
                    S-1-5-21-1-2-3\nActive Directory  : Yes\n";
        let told = told_domain(said, "A".into()).unwrap();
        assert_eq!((&*told.dns_name, told.sid.to_string()), ("a.test", "S-1-5-21-1-2-3".into()));
        assert_eq!(told_domain("Could not get domain info\n", "A".into()), None);
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
