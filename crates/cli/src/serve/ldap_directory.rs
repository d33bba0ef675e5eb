//! The directory of `[ldap]`, by a process that asks it.
//!
//! The server is confined before it serves anybody, and connects to nobody. So this process starts earlier. It
//! gets the password of the bind by its standard input, and nothing else of the server.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_auth::Zeroizing;
use frevo_config::AccountName;
use frevo_server::account_directory::{
    AccountDirectory, AskDirectory, DirectoryAccount, Lifetimes,
};
use parking_lot::Mutex;

use super::ask_ldap::{Answer, Question, Verdict};
use super::plan::Plan;
use crate::exit::Failure;
use crate::ldap::LdapSetup;

/// Longest answer, bytes: an account in as many groups as are counted.
const ANSWER_BYTES: u64 = 1 << 20;
/// Time in which the directory is not asked again after it did not answer, so that the logons of many do not
/// wait for it one after the other.
const DOWN: Duration = Duration::from_secs(5);

/// The process, as the server sees it.
struct Asker {
    process: Mutex<Process>,
}

struct Process {
    socket: BufReader<UnixStream>,
    /// The number of the latest question.
    last: u64,
    /// The end of the time in which the directory is not asked, and the reason.
    down: Option<(Instant, String)>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").finish_non_exhaustive()
    }
}

/// Starts the process, if the configuration has a directory.
pub(super) fn start(plan: &Plan) -> Result<Option<Arc<AccountDirectory>>, Failure> {
    let Some(setup) = LdapSetup::read(&plan.config)? else { return Ok(None) };
    let section = &plan.config.ldap;
    let seconds = |count: u32| Duration::from_secs(count.into());
    // All servers may be tried, each for as long as one may take.
    let servers = u32::try_from(section.urls.len()).unwrap_or(u32::MAX).saturating_add(1);
    let patience = seconds(section.timeout_seconds()).saturating_mul(2).saturating_mul(servers);
    let socket = spawn(&setup, patience)
        .map_err(Failure::failed("cannot start the process that asks the directory of [ldap]"))?;
    let process = Process { socket: BufReader::new(socket), last: 0, down: None };
    let (fresh, away) = (seconds(section.cache_seconds()), seconds(section.away_seconds()));
    let asker = Arc::new(Asker { process: Mutex::new(process) });
    Ok(Some(Arc::new(AccountDirectory::new(asker, Lifetimes { fresh, away }))))
}

/// Starts this program again as the process.
fn spawn(setup: &LdapSetup, patience: Duration) -> io::Result<UnixStream> {
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(patience))?;
    ours.set_write_timeout(Some(patience))?;
    let output: OwnedFd = theirs.try_clone()?.into();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("frevo-ldap").arg("ask-ldap").env_clear();
    command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(output));
    command.stderr(Stdio::null());
    // The process ends by itself when its socket is closed, so the server does not wait for it.
    command.spawn()?;
    let mut line = setup.line();
    line.push('\n');
    ours.write_all(line.as_bytes())?;
    Ok(ours)
}

impl AskDirectory for Asker {
    fn look_up(&self, user: &str) -> Result<Option<DirectoryAccount>, String> {
        // A name that no account file could have is none of an account.
        if user.parse::<AccountName>().is_err() {
            return Ok(None);
        }
        let mut process = self.process.lock();
        if let Some((until, why)) = &process.down
            && Instant::now() < *until
        {
            return Err(why.clone());
        }
        let verdict = process.exchange(user);
        let verdict =
            verdict.unwrap_or_else(|error| Verdict::Silent(format!("{error}; restart frevo")));
        process.down = None;
        match verdict {
            Verdict::Account(account) => Ok(Some(*account)),
            Verdict::Nobody => Ok(None),
            Verdict::Unusable(why) => {
                tracing::warn!(target: "frevo::session", user,
                    "the account of the directory is not used: {why}");
                Ok(None)
            }
            Verdict::Silent(why) => {
                process.down = Some((Instant::now() + DOWN, why.clone()));
                Err(why)
            }
        }
    }
}

impl Process {
    /// Sends a question and reads its answer; answers to questions that were abandoned come before.
    fn exchange(&mut self, user: &str) -> io::Result<Verdict> {
        self.last = self.last.saturating_add(1);
        let question = Question { id: self.last, user: user.to_owned() };
        writeln!(self.socket.get_mut(), "{}", question.object())?;
        loop {
            let mut line = Zeroizing::new(String::new());
            self.socket.by_ref().take(ANSWER_BYTES).read_line(&mut line)?;
            if !line.ends_with('\n') {
                return Err(io::Error::other("the process that asks has ended"));
            }
            match Answer::parse(&line) {
                Some(answer) if answer.id == question.id => return Ok(answer.verdict),
                Some(answer) if answer.id < question.id => {}
                _ => return Err(io::Error::other("an answer to nothing")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answers_are_passed_over_and_silence_is_remembered() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let process = Process { socket: BufReader::new(ours), last: 6, down: None };
        let asker = Asker { process: Mutex::new(process) };
        theirs.write_all(b"{\"id\":6,\"silent\":\"late\"}\n{\"id\":7,\"none\":true}\n").unwrap();
        assert_eq!(asker.look_up("ann"), Ok(None));
        assert_eq!(asker.look_up("a/n"), Ok(None), "no name of an account");
        theirs.write_all(b"{\"id\":8,\"unusable\":\"two\"}\n").unwrap();
        assert_eq!(asker.look_up("ann"), Ok(None), "and the directory is no less there");
        theirs.write_all(b"{\"id\":9,\"silent\":\"gone\"}\n").unwrap();
        assert_eq!(asker.look_up("ann"), Err("gone".into()));
        assert_eq!(asker.look_up("bob"), Err("gone".into()), "it is not asked");
        asker.process.lock().down = None;
        theirs.write_all(b"{\"id\":99,\"none\":true}\n").unwrap();
        assert!(asker.look_up("ann").unwrap_err().contains("an answer to nothing"));
        asker.process.lock().down = None;
        drop(theirs);
        assert!(asker.look_up("ann").unwrap_err().contains("restart frevo"));
    }
}
