//! The process that asks winbind for the server: `frevo ask-winbind`.
//!
//! A line of standard input is a question, a line of standard output its answer. `ntlm_auth` judges
//! the proof and tells the session key, `wbinfo` the user's SIDs. Names come from clients, so they
//! never begin an argument, and never end a line.

use std::io::{self, BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use frevo_auth::Zeroizing;
use serde_json::{Value, json};

use super::confine::helpers;
use crate::exit::Done;
use crate::wbinfo::{command, domain_info, known, told_domain, wbinfo};

/// Time for an answer of `ntlm_auth`: a controller that does not answer is given up by winbind.
const PATIENCE: Duration = Duration::from_secs(14);
/// Most SIDs of a user.
const SIDS: usize = 2_048;
/// Longest question, bytes.
const QUESTION_BYTES: u64 = 128 << 10;
/// The refusal of a principal name that was judged, and that names nobody.
const NO_SUCH_NAME: &str = "winbind knows nobody of this name in the domains of winbind_domains";
/// The end of a question and of an answer in `ntlm-server-1`.
const END: &str = ".";

/// A proof of a password. Bytes are in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) id: u64,
    pub(super) user: String,
    pub(super) domain: String,
    pub(super) challenge: String,
    pub(super) nt_response: String,
    pub(super) lm_response: String,
    /// The domains whose users may be the answer.
    pub(super) domains: Vec<String>,
}

impl Question {
    pub(super) fn object(&self) -> Value {
        json!({
            "id": self.id, "user": self.user, "domain": self.domain, "challenge": self.challenge,
            "nt_response": self.nt_response, "lm_response": self.lm_response,
            "domains": self.domains,
        })
    }

    fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| object.get(key)?.as_str().map(String::from);
        let digits = |key: &str| text(key).filter(|text| unhex(text).is_some());
        let domains = object.get("domains")?.as_array()?.iter();
        Some(Self {
            id: object.get("id")?.as_u64()?,
            domains: domains.map(|name| name.as_str().map(String::from)).collect::<Option<_>>()?,
            user: text("user")?,
            domain: text("domain")?,
            challenge: digits("challenge")?,
            nt_response: digits("nt_response")?,
            lm_response: digits("lm_response")?,
        })
    }
}

/// The judgement of a domain controller.
pub(super) enum Outcome {
    Accepted {
        key: Zeroizing<String>,
        domain: String,
        user: String,
        sids: Vec<String>,
    },
    /// The controller's word.
    Refused(String),
    /// The reason why there is no judgement.
    Silent(String),
}

/// The answer to the question with the same number.
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) outcome: Outcome,
}

impl Answer {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let id = object.get("id")?.as_u64()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(String::from);
        if let Some(why) = text("refused") {
            return Some(Self { id, outcome: Outcome::Refused(why) });
        }
        if let Some(why) = text("silent") {
            return Some(Self { id, outcome: Outcome::Silent(why) });
        }
        let sids = object.get("sids")?.as_array()?.iter().take(SIDS);
        let sids = sids.filter_map(|sid| sid.as_str().map(String::from)).collect();
        let key = Zeroizing::new(text("key")?);
        let outcome = Outcome::Accepted { key, domain: text("domain")?, user: text("user")?, sids };
        Some(Self { id, outcome })
    }

    fn object(&self) -> Value {
        let id = self.id;
        match &self.outcome {
            Outcome::Accepted { key, domain, user, sids } => {
                json!({ "id": id, "key": **key, "domain": domain, "user": user, "sids": sids })
            }
            Outcome::Refused(why) => json!({ "id": id, "refused": why }),
            Outcome::Silent(why) => json!({ "id": id, "silent": why }),
        }
    }
}

/// Answers questions until the server has ended.
pub(crate) fn run(as_root: bool) -> Done {
    // The name of the thread only helps in process lists, so an error is ignored.
    let _ = rustix::thread::set_name(c"frevo-winbind");
    helpers::confine_winbind(as_root);
    let mut judge = None;
    let mut stdin = io::stdin().lock();
    loop {
        let mut line = String::new();
        match io::Read::take(&mut stdin, QUESTION_BYTES).read_line(&mut line) {
            Ok(length) if length > 0 => {}
            _ => return Ok(()),
        }
        let Some(question) = Question::parse(&line) else { return Ok(()) };
        let outcome = answer(&mut judge, &question).unwrap_or_else(|error| {
            judge = None;
            Outcome::Silent(format!("{error}; is winbind installed and running? wbinfo --ping-dc"))
        });
        let answer = Answer { id: question.id, outcome };
        let mut stdout = io::stdout().lock();
        let told = writeln!(stdout, "{}", answer.object()).and_then(|()| stdout.flush());
        if told.is_err() {
            return Ok(());
        }
    }
}

fn answer(judge: &mut Option<NtlmAuth>, question: &Question) -> io::Result<Outcome> {
    let verdict = match judge.as_mut() {
        Some(judge) => judge.ask(question),
        None => judge.insert(NtlmAuth::start()?).ask(question),
    };
    let key = match verdict? {
        Verdict::Accepted(key) => key,
        Verdict::Refused(why) => return Ok(Outcome::Refused(why)),
        Verdict::Silent(why) => return Ok(Outcome::Silent(why)),
    };
    named(question, key, &wbinfo)
}

/// Asks winbind questions, as [`wbinfo`] does.
type Names<'a> = &'a dyn Fn(&str) -> io::Result<String>;

/// Asks for the user whose proof was accepted.
fn named(question: &Question, key: Zeroizing<String>, wbinfo: Names<'_>) -> io::Result<Outcome> {
    let is_principal = question.domain.is_empty();
    let judge = match is_principal {
        true => Some(JudgeDomain::of(question, wbinfo)?),
        false => None,
    };
    let sid = match &judge {
        Some(judge) => judge.sid_of_principal()?,
        None => Some(wbinfo(&format!("--name-to-sid={}\\{}", question.domain, question.user))?),
    };
    let Some(sid) = sid else { return Ok(Outcome::Refused(String::from(NO_SUCH_NAME))) };
    let sid = sid.split_whitespace().next().unwrap_or_default().to_owned();
    let stored = wbinfo(&format!("--sid-to-name={sid}"))?;
    // wbinfo prints the name and its type, as in `DOMAIN\name 1`, so the type is cut off.
    let stored = stored.trim().rsplit_once(' ').map_or("", |(name, _)| name);
    let Some((domain, user)) = stored.split_once('\\') else {
        return Err(io::Error::other("wbinfo does not know the name of the user"));
    };
    if let Some(judge) = judge
        && !judge.may_name(domain)?
    {
        return Ok(Outcome::Refused(format!(
            "the name is that of a user of {domain}, which winbind_domains does not list"
        )));
    }
    let mut sids = vec![sid.clone()];
    for other in wbinfo(&format!("--user-sids={sid}"))?.lines().take(SIDS) {
        if other != sid {
            sids.push(other.to_owned());
        }
    }
    Ok(Outcome::Accepted { key, domain: domain.to_owned(), user: user.to_owned(), sids })
}

/// The domain of winbind, whose controller judges the proof of a principal name, `user@suffix`:
/// `ntlm_auth` fills it in where the client names none.
struct JudgeDomain<'a> {
    name: String,
    question: &'a Question,
    wbinfo: Names<'a>,
}

impl<'a> JudgeDomain<'a> {
    fn of(question: &'a Question, wbinfo: Names<'a>) -> io::Result<Self> {
        let name = wbinfo("--own-domain")?.trim().to_owned();
        Ok(Self { name, question, wbinfo })
    }

    /// The SID of the principal, which the judge knows. A suffix may also be the name of a domain. winbind
    /// takes it for that in the plain form, so this form may mean the user of another domain than the
    /// one that was judged, and it is asked only for a domain of the configuration, or the judge.
    fn sid_of_principal(&self) -> io::Result<Option<String>> {
        let principal = &self.question.user;
        let of_judge = (self.wbinfo)(&format!("--name-to-sid={}\\{principal}", self.name));
        if let Some(sid) = known(of_judge)? {
            return Ok(Some(sid));
        }
        let suffix = principal.rsplit_once('@').map_or("", |(_, suffix)| suffix);
        let is_known = is_listed(self.question, suffix)
            || suffix.eq_ignore_ascii_case(&self.name)
            || suffix.eq_ignore_ascii_case(&self.dns_name(&self.name)?);
        match is_known {
            true => known((self.wbinfo)(&format!("--name-to-sid={principal}"))),
            false => Ok(None),
        }
    }

    /// True for the judge and for a domain of the configuration, which may list its DNS name only.
    fn may_name(&self, domain: &str) -> io::Result<bool> {
        let is_named = domain.eq_ignore_ascii_case(&self.name) || is_listed(self.question, domain);
        Ok(is_named || is_listed(self.question, &self.dns_name(domain)?))
    }

    /// The DNS name of a domain. It is empty where winbind knows none.
    fn dns_name(&self, domain: &str) -> io::Result<String> {
        let said = known((self.wbinfo)(&domain_info(domain)))?;
        let told = said.and_then(|said| told_domain(&said, domain.to_owned()));
        Ok(told.map_or_else(String::new, |told| told.dns_name))
    }
}

fn is_listed(question: &Question, domain: &str) -> bool {
    !domain.is_empty() && question.domains.iter().any(|name| name.eq_ignore_ascii_case(domain))
}

enum Verdict {
    /// The session key in hexadecimal digits.
    Accepted(Zeroizing<String>),
    Refused(String),
    Silent(String),
}

/// `ntlm_auth`, which judges one proof after the other.
struct NtlmAuth {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl NtlmAuth {
    fn start() -> io::Result<Self> {
        let mut command = command("ntlm_auth");
        command.arg("--helper-protocol=ntlm-server-1").stderr(Stdio::null());
        Self::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
    }

    fn of(mut child: Child) -> io::Result<Self> {
        let missing = || io::Error::other("no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let (sender, lines) = channel();
        // A read of a pipe has no time limit, so a thread reads it and sends the lines to a
        // channel, which has one.
        std::thread::Builder::new().spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { child, input, lines })
    }

    fn ask(&mut self, question: &Question) -> io::Result<Verdict> {
        self.input.write_all(asked(question).as_bytes())?;
        self.input.flush()?;
        let mut answer = Zeroizing::new(String::new());
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                // After a refusal END comes twice. The second one precedes the next answer and is
                // skipped.
                Ok(line) if line == END && answer.is_empty() => {}
                Ok(line) if line == END => return Ok(verdict(&answer)),
                Ok(line) => {
                    let line = Zeroizing::new(line);
                    answer.push_str(&line);
                    answer.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => return Err(io::Error::other("ntlm_auth hangs")),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("ntlm_auth has ended"));
                }
            }
        }
    }
}

impl Drop for NtlmAuth {
    fn drop(&mut self) {
        // If the process has ended already, `kill` fails, which does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A question of `ntlm-server-1`. `::` marks a value in Base64, so that no name of a client can be
/// another line.
fn asked(question: &Question) -> String {
    let mut text = String::new();
    for (key, value) in [("Username", &question.user), ("NT-Domain", &question.domain)] {
        if !value.is_empty() {
            text.push_str(&format!("{key}:: {}\n", base64(value.as_bytes())));
        }
    }
    text.push_str(&format!("LANMAN-Challenge: {}\n", question.challenge));
    text.push_str(&format!("NT-Response: {}\n", question.nt_response));
    if !question.lm_response.is_empty() {
        text.push_str(&format!("LANMAN-Response: {}\n", question.lm_response));
    }
    text.push_str("Request-User-Session-Key: Yes\n.\n");
    text
}

fn verdict(answer: &str) -> Verdict {
    let value = |key: &str| {
        answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).map(str::trim)
    };
    let why = || value("Authentication-Error").unwrap_or("no reason").to_owned();
    match (value("Authenticated"), value("User-Session-Key")) {
        (Some("Yes"), Some(key)) if unhex(key).is_some_and(|key| key.len() == 16) => {
            Verdict::Accepted(Zeroizing::new(key.to_owned()))
        }
        (Some("Yes"), _) => Verdict::Silent(String::from(
            "winbind tells no session key; the user that runs Frevo must be root or in the group \
             winbindd_priv",
        )),
        (Some("No"), _) if is_about_user(&why()) => Verdict::Refused(why()),
        _ => Verdict::Silent(format!("winbind says: {}", why())),
    }
}

/// True for a refusal by a controller. Others are of winbind, or say that no controller answers.
fn is_about_user(why: &str) -> bool {
    let silent =
        ["winbind", "logon server", "domain controller", "LOGON_SERVERS", "RPC", "NETLOGON"];
    let silent = silent.iter().chain(&["ACCESS_DENIED", "Access denied", "TRUST", "trust", "IO_"]);
    !silent.into_iter().any(|word| why.contains(word))
}

/// Hexadecimal digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub(super) fn unhex(digits: &str) -> Option<Vec<u8>> {
    let is_even = digits.len().is_multiple_of(2) && digits.is_ascii();
    let pairs = is_even.then(|| digits.as_bytes().chunks(2))?;
    let byte = |pair| {
        let text = std::str::from_utf8(pair).ok().filter(|text| !text.starts_with('+'))?;
        u8::from_str_radix(text, 16).ok()
    };
    pairs.map(byte).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            id: 3,
            user: "ann\nPassword: x".into(),
            domain: "A".into(),
            challenge: "0102030405060708".into(),
            nt_response: "aabb".into(),
            lm_response: String::new(),
            domains: vec!["A".into(), "b.test".into()],
        }
    }

    /// Tells who is logged on by a principal name. winbind's own domain is A, which trusts B and C, and
    /// each of them has an ann.
    fn by_principal(user: &str, of_own: Option<&str>) -> Result<String, String> {
        let wbinfo = |argument: &str| {
            let (verb, name) = argument.split_once('=').unwrap_or((argument, ""));
            let said = match (verb, name) {
                ("--own-domain", _) => Some("A\n".to_owned()),
                ("--name-to-sid", name) if name.starts_with("A\\") => of_own.map(String::from),
                ("--name-to-sid", "ann@a.test" | "ann@A") => Some("S-1-5-21-1 SID_USER (1)".into()),
                ("--name-to-sid", "ann@b.test") => Some("S-1-5-21-2 SID_USER (1)".into()),
                ("--name-to-sid", "ann@c.test") => Some("S-1-5-21-3 SID_USER (1)".into()),
                ("--sid-to-name", "S-1-5-21-1") => Some("A\\ann 1\n".into()),
                ("--sid-to-name", "S-1-5-21-2") => Some("B\\ann 1\n".into()),
                ("--sid-to-name", "S-1-5-21-3") => Some("C\\ann 1\n".into()),
                ("--user-sids", sid) => Some(format!("{sid}\n")),
                ("--domain-info", name) => {
                    let dns = name.to_lowercase();
                    Some(format!("Alt_Name : {dns}.test\nSID : S-1-5-21-1-2-3\n"))
                }
                _ => None,
            };
            said.ok_or_else(|| io::Error::other("wbinfo: could not lookup name"))
        };
        let question = Question { user: user.into(), domain: String::new(), ..question() };
        match named(&question, Zeroizing::new(String::new()), &wbinfo).unwrap() {
            Outcome::Accepted { domain, user, .. } => Ok(format!("{domain}\\{user}")),
            Outcome::Refused(why) | Outcome::Silent(why) => Err(why),
        }
    }

    #[test]
    fn a_principal_name_means_a_user_of_the_domain_that_was_asked() {
        let of = |user: &str, own: Option<&str>| by_principal(user, own);
        let ann = Some("S-1-5-21-1 SID_USER (1)");
        // The suffix is the name of a domain that is not listed, or none.
        for suffix in ["other.suffix", "c.test", "b.test"] {
            assert_eq!(of(&format!("ann@{suffix}"), ann).as_deref(), Ok("A\\ann"), "{suffix}");
        }
        let refused = Err(String::from(NO_SUCH_NAME));
        assert_eq!(of("ann@c.test", None), refused, "another domain's ann");
        assert_eq!(of("ann@other.suffix", None), refused);
        // The own domain, by its DNS name, which is not listed, and by its short name.
        assert_eq!(of("ann@a.test", None).as_deref(), Ok("A\\ann"));
        assert_eq!(of("ann@A", None).as_deref(), Ok("A\\ann"));
        assert_eq!(of("ann@b.test", None).as_deref(), Ok("B\\ann"), "listed by its DNS name");
        // The own domain answers with the user of another one.
        let other = of("ann@other.suffix", Some("S-1-5-21-3 SID_USER (1)")).unwrap_err();
        assert!(other.contains("a user of C, which winbind_domains does not list"), "{other}");
    }

    #[test]
    fn bytes_as_text() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xff\xff?", "//8/"),
        ] {
            assert_eq!(base64(bytes), text);
            assert_eq!(unhex(&hex(bytes)).unwrap(), bytes);
        }
        for bad in ["0", "0g", "+1", "äö"] {
            assert!(unhex(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn no_name_is_another_line() {
        let text = asked(&question());
        let expected = "Username:: YW5uClBhc3N3b3JkOiB4\nNT-Domain:: QQ==\nLANMAN-Challenge: \
                        0102030405060708\nNT-Response: aabb\nRequest-User-Session-Key: Yes\n.\n";
        assert_eq!(text, expected);
        assert_eq!(Question::parse(&question().object().to_string()), Some(question()));
        let odd = Question { nt_response: "a\nb".into(), ..question() };
        assert_eq!(Question::parse(&odd.object().to_string()), None);
    }

    #[test]
    fn verdicts_of_ntlm_auth() {
        let key = "00112233445566778899AABBCCDDEEFF";
        let accepted = format!("Authenticated: Yes\nUser-Session-Key: {key}\n");
        assert!(matches!(verdict(&accepted), Verdict::Accepted(found) if *found == key));
        for (answer, word) in [
            ("Authenticated: Yes\n", "winbindd_priv"),
            ("Authenticated: Yes\nUser-Session-Key: 00\n", "winbindd_priv"),
            (
                "Authenticated: No\nAuthentication-Error: No logon servers (0xc000005e)\n",
                "No logon",
            ),
            ("Authenticated: No\nAuthentication-Error: Reading winbind reply failed!\n", "Reading"),
            ("", "no reason"),
        ] {
            let silent = verdict(answer);
            assert!(matches!(&silent, Verdict::Silent(why) if why.contains(word)), "{answer}");
        }
        let wrong = "Authenticated: No\nAuthentication-Error: Wrong Password\n";
        assert!(matches!(verdict(wrong), Verdict::Refused(why) if why == "Wrong Password"));
    }

    #[test]
    fn a_program_that_speaks_the_protocol() {
        let script = "while read l; do [ \"$l\" = . ] && echo 'Authenticated: No\nAuthentication-Error: \
                      Wrong Password\n.\n.'; done";
        let mut shell = command("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut judge = NtlmAuth::of(shell.spawn().unwrap()).unwrap();
        for _ in 0..2 {
            assert!(matches!(judge.ask(&question()).unwrap(), Verdict::Refused(_)));
        }
        judge.child.kill().unwrap();
        judge.child.wait().unwrap();
        assert!(judge.ask(&question()).is_err());
    }
}
