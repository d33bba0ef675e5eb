//! NTLM for users of domains, by processes that ask winbind.
//!
//! The server is confined before it serves anybody, and can run no program. So these processes start
//! earlier, run Samba's programs in the server's place, and share nothing with the server but a
//! socket each.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_auth::kerberos::{LogonInfo, UserAccountControl};
use frevo_auth::{AccountFault, DomainLogon, DomainQuestion, Reason, Zeroizing};
use frevo_server::domain_logons::DomainLogons;
use frevo_wire::dtyp::Sid;
use parking_lot::{Condvar, Mutex};

use super::ask_winbind::{Answer, Outcome, Question, hex, unhex};
use super::plan::Plan;
use crate::domain::membership::Membership;
use crate::exit::Failure;
use crate::state;

/// Processes, and so questions at one time.
const PROCESSES: usize = 4;
/// Time for an answer; the process has given up before.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer, bytes: the SIDs of a user in a thousand groups.
const ANSWER_BYTES: u64 = 256 << 10;

/// The processes that are free.
#[derive(Debug)]
pub(super) struct Winbind {
    free: Mutex<Vec<BufReader<UnixStream>>>,
    freed: Condvar,
    next: AtomicU64,
}

impl Winbind {
    /// Starts the processes, if the configuration names domains.
    pub(super) fn start(plan: &Plan) -> Result<Option<Arc<Self>>, Failure> {
        let domains = plan.config.server.winbind_domains.as_ref();
        if domains.is_none_or(|domains| domains.get_ref().is_empty()) {
            return Ok(None);
        }
        // If winbind uses the smb.conf of the join, its socket is in the state directory, so the
        // processes that ask it run as root.
        let as_root = plan.has_state && Membership::has_smb_conf(&state::dir_of(&plan.config));
        let processes: io::Result<Vec<_>> = (0..PROCESSES).map(|_| spawn(as_root)).collect();
        let free =
            processes.map_err(Failure::failed("cannot start the processes that ask winbind"))?;
        let (freed, next) = (Condvar::new(), AtomicU64::new(1));
        Ok(Some(Arc::new(Self { free: Mutex::new(free), freed, next })))
    }

    /// Asks a process, and waits for one that is free.
    fn ask(&self, question: &DomainQuestion) -> io::Result<Answer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let question = Question {
            id,
            user: question.user.clone(),
            domain: question.domain.clone(),
            challenge: hex(&question.challenge),
            nt_response: hex(&question.nt_response),
            lm_response: hex(&question.lm_response),
            domains: question.domains.clone(),
        };
        let mut process = self.take();
        let answer = exchange(&mut process, &question);
        self.free.lock().push(process);
        self.freed.notify_one();
        answer
    }

    fn take(&self) -> BufReader<UnixStream> {
        let mut free = self.free.lock();
        loop {
            if let Some(process) = free.pop() {
                return process;
            }
            self.freed.wait(&mut free);
        }
    }
}

/// Starts this program again as a process that asks.
fn spawn(as_root: bool) -> io::Result<BufReader<UnixStream>> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(PATIENCE))?;
    ours.set_write_timeout(Some(PATIENCE))?;
    let output: OwnedFd = theirs.try_clone()?.into();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("frevo-winbind").arg("ask-winbind").env_clear();
    command.args(as_root.then_some("--as-root"));
    command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(output));
    command.stderr(Stdio::null());
    // The process ends by itself when its socket is closed, so the server does not wait for it.
    command.spawn()?;
    Ok(BufReader::new(ours))
}

/// Sends a question and reads its answer; answers to questions that were abandoned come before.
fn exchange(process: &mut BufReader<UnixStream>, question: &Question) -> io::Result<Answer> {
    let line = serde_json::to_string(&question.object()).map_err(io::Error::other)?;
    writeln!(process.get_mut(), "{line}")?;
    loop {
        let mut line = Zeroizing::new(String::new());
        process.by_ref().take(ANSWER_BYTES).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(io::Error::other("the process that asks winbind has ended"));
        }
        match Answer::parse(&line) {
            Some(answer) if answer.id == question.id => return Ok(answer),
            Some(answer) if answer.id < question.id => {}
            _ => return Err(io::Error::other("an answer to nothing")),
        }
    }
}

impl DomainLogons for Winbind {
    fn check(&self, question: &DomainQuestion) -> Result<DomainLogon, Reason> {
        let answer = self.ask(question).map_err(|error| {
            Reason::DomainSilent(format!("{error}; restart the server if that goes on"))
        })?;
        match answer.outcome {
            Outcome::Accepted { key, domain, user, sids } => logon(&key, domain, user, &sids)
                .ok_or_else(|| Reason::DomainSilent(String::from("winbind's answer is malformed"))),
            Outcome::Refused(why) => Err(refusal(why)),
            Outcome::Silent(why) => Err(Reason::DomainSilent(why)),
        }
    }
}

/// The reason of a refusal, from the words or the name of its status (MS-ERREF 2.3.1).
fn refusal(why: String) -> Reason {
    use AccountFault::{
        Disabled, Expired, Hours, LockedOut, MustChange, PasswordExpired, Restriction, Workstation,
    };
    const WORDS: [(AccountFault, &str, &str); 8] = [
        (Disabled, "ACCOUNT_DISABLED", "currently disabled"),
        (Expired, "ACCOUNT_EXPIRED", "user account has expired"),
        (PasswordExpired, "PASSWORD_EXPIRED", "password has expired"),
        (MustChange, "PASSWORD_MUST_CHANGE", "password must be changed"),
        (LockedOut, "ACCOUNT_LOCKED_OUT", "automatically locked"),
        (Hours, "INVALID_LOGON_HOURS", "time restrictions"),
        (Workstation, "INVALID_WORKSTATION", "source workstation"),
        (Restriction, "ACCOUNT_RESTRICTION", "some user account restriction"),
    ];
    let said = why.to_lowercase();
    let is_said =
        |(_, name, words): &&(AccountFault, &str, &str)| why.contains(name) || said.contains(words);
    if let Some((fault, ..)) = WORDS.iter().find(is_said) {
        return Reason::DomainAccount(*fault);
    }
    let is_password = ["WRONG_PASSWORD", "LOGON_FAILURE"].iter().any(|name| why.contains(name))
        || said.contains("current password is not correct")
        || said.contains("bad username or authentication information");
    let is_unknown = why.contains("NO_SUCH_USER") || said.contains("account does not exist");
    Reason::DomainRefused(match (is_password, is_unknown) {
        (true, _) => String::from("the password is wrong, or there is no such user"),
        (_, true) => String::from("there is no such user"),
        _ => why,
    })
}

/// The logon of an answer. The first SID is the user's, the second that of the primary group.
fn logon(key: &str, domain: String, user: String, sids: &[String]) -> Option<DomainLogon> {
    let session_key = Zeroizing::new(unhex(key)?);
    // Only SIDs of domains (S-1-5-21-...) are accepted, so that a controller cannot make a user a
    // member of this machine's own groups.
    let is_of_domain =
        |sid: &Sid| sid.authority() == 5 && sid.sub_authorities().first() == Some(&21);
    let sids: Vec<Sid> = sids.iter().filter_map(|sid| sid.parse().ok()).collect();
    let (user_sid, groups) = sids.split_first().filter(|(user, _)| is_of_domain(user))?;
    let (domain_sid, _) = user_sid.split_rid()?;
    let groups: Vec<Sid> = groups.iter().copied().filter(is_of_domain).collect();
    let primary_group = groups.first().copied().or_else(|| domain_sid.with_rid(513))?;
    let user = LogonInfo {
        user_name: user,
        full_name: String::new(),
        logon_server: String::new(),
        domain,
        domain_sid,
        user: *user_sid,
        primary_group,
        groups,
        upn: None,
        dns_domain: None,
        user_account_control: UserAccountControl::NORMAL,
        kick_off: None,
    };
    Some(DomainLogon { session_key, user: Arc::new(user) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_sentences_of_their_own() {
        use frevo_auth::Refusal;
        use frevo_wire::Status;
        let of = |why: &str| Refusal::new(refusal(why.to_owned()));
        for (why, status) in [
            (
                "The referenced account is currently disabled and may not be logged on to.",
                Status::ACCOUNT_DISABLED,
            ),
            ("NT_STATUS_ACCOUNT_EXPIRED", Status::ACCOUNT_EXPIRED),
            ("The user account has expired.", Status::ACCOUNT_EXPIRED),
            ("The user account password has expired.", Status::PASSWORD_EXPIRED),
            (
                "The user password must be changed before logging on the first time.",
                Status::PASSWORD_MUST_CHANGE,
            ),
            (
                "The user account has been automatically locked because too many",
                Status::ACCOUNT_LOCKED_OUT,
            ),
            (
                "The user account has time restrictions and may not be logged onto",
                Status::INVALID_LOGON_HOURS,
            ),
            (
                "When trying to update a password, ... as the current password is not correct.",
                Status::LOGON_FAILURE,
            ),
            ("The specified account does not exist.", Status::LOGON_FAILURE),
            ("Something else", Status::LOGON_FAILURE),
        ] {
            assert_eq!(of(why).status(), status, "{why}");
        }
        let wrong = of("NT_STATUS_WRONG_PASSWORD").to_string();
        assert_eq!(
            wrong,
            "the domain refuses the user: the password is wrong, or there is no such user"
        );
        assert_eq!(of("Something else").to_string(), "the domain refuses the user: Something else");
    }

    #[test]
    fn the_groups_of_a_machine_do_not_count() {
        let sids = ["S-1-5-21-1-2-3-1105", "S-1-5-32-544", "S-1-5-21-1-2-3-513", "S-1-1-0", "x"];
        let sids = sids.map(String::from);
        let key = "00112233445566778899aabbccddeeff";
        let found = logon(key, "A".into(), "ann".into(), &sids).unwrap();
        assert_eq!(found.user.user.to_string(), sids[0]);
        assert_eq!(found.user.groups, [sids[2].parse().unwrap()]);
        assert_eq!(found.user.domain_sid.to_string(), "S-1-5-21-1-2-3");
        assert_eq!(found.session_key.len(), 16);
        let none = logon(key, "A".into(), "ann".into(), &sids[1..]);
        assert!(none.is_none(), "no user of a domain");
        assert!(logon("0g", "A".into(), "ann".into(), &sids).is_none());
        let alone = logon(key, "A".into(), "ann".into(), &sids[..1]).unwrap();
        assert_eq!(alone.user.primary_group.to_string(), "S-1-5-21-1-2-3-513");
    }

    /// A question that was abandoned has left its answer in the socket.
    #[test]
    fn late_answers_are_passed_over() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (free, freed) = (Mutex::new(vec![BufReader::new(ours)]), Condvar::new());
        let winbind = Winbind { free, freed, next: AtomicU64::new(7) };
        let question = DomainQuestion {
            user: "ann".into(),
            domain: "A".into(),
            challenge: [1; 8],
            nt_response: vec![2],
            lm_response: Vec::new(),
            domains: vec!["A".into()],
        };
        for (answers, word) in [
            (
                "{\"id\":6,\"silent\":\"late\"}\n{\"id\":7,\"refused\":\"no\"}\n",
                "refuses the user: no",
            ),
            ("{\"id\":9,\"refused\":\"no\"}\n", "an answer to nothing"),
            ("x\n", "an answer to nothing"),
        ] {
            theirs.write_all(answers.as_bytes()).unwrap();
            let reason = winbind.check(&question).unwrap_err().to_string();
            assert!(reason.contains(word), "{reason}");
        }
        drop(theirs);
        assert!(matches!(winbind.check(&question), Err(Reason::DomainSilent(_))));
        assert_eq!(winbind.free.lock().len(), 1);
    }
}
