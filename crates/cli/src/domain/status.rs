//! `frevo domain status`: checks of the memberships, in one sentence each.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use frevo_auth::kerberos::{
    EncryptionType, KdcErrorCode, KeyAnswer, Keytab, Policy, Principal, ServiceKey,
};
use frevo_wire::dtyp::FileTime;
use serde_json::json;

use super::kdc::{self, Asking, Controller, Source};
use super::membership::Membership;
use super::tools;
use crate::cluster::OfRealm;
use crate::console::print_text;
use crate::exit::{Done, Exit, Failure, is_json};
use crate::plural::counted;
use crate::wbinfo::{own_domain, wbinfo};

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Ok,
    /// It works, but not in each case.
    Warning,
    /// Logons fail.
    Fault,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// One check with its result.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) sentence: String,
}

/// The account that is checked.
pub(super) struct Subject {
    pub(super) realm: String,
    pub(super) account: Principal,
    pub(super) service: Principal,
    pub(super) controller: Option<String>,
    /// True for a membership that `frevo domain` has made.
    pub(super) is_membership: bool,
    /// The keytab that the server reads.
    pub(super) path: PathBuf,
    pub(super) keytab: Keytab,
    pub(super) policy: Policy,
    /// The name of the server, where a configuration tells it.
    pub(super) server_name: Option<String>,
    /// True if the configuration passes NTLM for users of the domain to winbind.
    pub(super) passes_ntlm: bool,
}

impl Subject {
    /// The subject of a membership.
    pub(super) fn of_membership(
        member: &Membership,
        path: PathBuf,
        keytab: Keytab,
        policy: Policy,
    ) -> Self {
        Self {
            realm: member.realm.clone(),
            account: member.principal(),
            service: member.service(),
            controller: member.controller.clone(),
            is_membership: true,
            path,
            keytab,
            policy,
            server_name: None,
            passes_ntlm: false,
        }
    }

    /// The subjects of a keytab that was made by other means, one for each realm.
    pub(super) fn of_keytab(path: &std::path::Path, keytab: &Keytab, policy: &Policy) -> Vec<Self> {
        let mut subjects: Vec<Self> = Vec::new();
        let principals = keytab.entries.iter().map(|entry| &entry.key.principal);
        for principal in principals.clone() {
            if subjects.iter().any(|known| known.realm == principal.realm) {
                continue;
            }
            let mut ours = principals.clone().filter(|one| one.realm == principal.realm);
            let is_machine =
                |one: &&Principal| matches!(&*one.components, [name] if name.ends_with('$'));
            let is_cifs =
                |one: &&Principal| one.components.first().is_some_and(|name| name == "cifs");
            let machine = ours.clone().find(is_machine);
            let service = ours.find(is_cifs).or(machine).unwrap_or(principal);
            subjects.push(Self {
                realm: principal.realm.clone(),
                account: machine.unwrap_or(service).clone(),
                service: service.clone(),
                controller: None,
                is_membership: false,
                path: path.to_owned(),
                keytab: keytab.clone(),
                policy: policy.clone(),
                server_name: None,
                passes_ntlm: false,
            });
        }
        subjects
    }

    /// The keys of the realm in the keytab.
    fn keys(&self) -> Vec<ServiceKey> {
        let all = self.keytab.clone().into_keys().into_iter();
        all.filter(|key| key.principal.realm == self.realm).collect()
    }

    /// The newest keys of the account, or of the service where the keytab has none of the account.
    fn newest(&self) -> Vec<ServiceKey> {
        let keys = self.keys();
        let allowed = |key: &&ServiceKey| self.policy.etypes.contains(&key.key.etype());
        let newest = keys.iter().filter(allowed).map(|key| key.kvno).max();
        let mut found: Vec<ServiceKey> = Vec::new();
        for key in keys.iter().filter(allowed).filter(|key| Some(key.kvno) == newest) {
            if !found.iter().any(|known| known.key.etype() == key.key.etype()) {
                found.push(key.clone());
            }
        }
        found
    }

    /// Makes all checks.
    pub(super) fn check(&self, now: impl Fn() -> FileTime) -> Vec<Check> {
        let mut checks = Checks(Vec::new());
        let controllers = match kdc::find(&self.realm, self.controller.as_deref()) {
            Ok(controllers) => controllers,
            Err(why) => {
                checks.fault("dns", why);
                self.check_keytab(&mut checks);
                return checks.0;
            }
        };
        let listed: Vec<String> = controllers.all.iter().map(ToString::to_string).collect();
        let listed = listed.join(", ");
        checks.ok(
            "dns",
            match controllers.source {
                Source::Join => format!("The controller {listed} was named at the join."),
                Source::Dns => format!("DNS names the controllers {listed}."),
                Source::Configuration => format!("krb5.conf names the controllers {listed}."),
            },
        );
        if controllers.all.iter().all(Controller::is_address) {
            checks.warn(
                "names",
                format!(
                    "The controllers are known by address only ({listed}), and there are no tickets \
                     for addresses: names in rules are not resolved. Write full names in krb5.conf."
                ),
            );
        }
        let has_keys = self.check_keytab(&mut checks);
        self.check_name(&mut checks);
        let mut reached = None;
        for controller in &controllers.all {
            let asking = self.asking(controller);
            let before = now();
            match asking.0.ask(None, before) {
                Ok(answer) => {
                    reached = reached.or(Some((controller, before, answer)));
                }
                Err(error) => checks.warn(
                    "controller",
                    format!(
                        "{controller} does not answer ({error}); check that it runs, and firewalls."
                    ),
                ),
            }
        }
        let Some((controller, before, answer)) = reached else {
            checks.fault("controller", format!("No controller of {} answers.", self.realm));
            return checks.0;
        };
        checks.ok("controller", format!("{controller} answers."));
        let goes_on = self.check_refusal(&mut checks, &controller.to_string(), before, &answer);
        if goes_on && has_keys {
            self.check_keys(&mut checks, controller, &now);
        }
        if self.passes_ntlm {
            check_winbind(&mut checks);
        }
        self.check_trusts(&mut checks);
        checks.0
    }

    /// Asks the first controller that answers if it accepts the newest key of the account: false
    /// without a key, None if nobody answers.
    pub(super) fn is_accepted(&self, now: impl Fn() -> FileTime) -> Option<bool> {
        let newest = self.newest();
        let Some(proof) = newest.first() else { return Some(false) };
        let controllers = kdc::find(&self.realm, self.controller.as_deref()).ok()?;
        let etypes = &self.policy.etypes;
        let answer = controllers.all.iter().find_map(|controller| {
            let (client, server) = (&self.account, &self.service);
            let asking = Asking { controller, client, server, etypes, keys: &[] };
            asking.ask(Some(&proof.key), now()).ok()
        });
        match answer? {
            KeyAnswer::Refused { code: KdcErrorCode::PRE_AUTHENTICATION_FAILED, .. } => Some(false),
            KeyAnswer::Ticket { .. } => Some(true),
            KeyAnswer::Refused { .. } => None,
        }
    }

    fn asking<'a>(&'a self, controller: &'a Controller) -> (Asking<'a>,) {
        let etypes = &EncryptionType::ALL;
        (Asking { controller, client: &self.account, server: &self.service, etypes, keys: &[] },)
    }

    /// Checks the contents of the keytab; false if it has no usable key.
    fn check_keytab(&self, checks: &mut Checks) -> bool {
        let shown = self.path.display();
        let newest = self.newest();
        let Some(first) = newest.first() else {
            let text = format!(
                "The keytab {shown} has no key of {} of an allowed encryption type; {}.",
                self.realm,
                self.repair()
            );
            checks.fault("keytab", text);
            return false;
        };
        let types: Vec<&str> = newest.iter().map(|key| key.key.etype().name()).collect();
        let mut versions: Vec<u32> = self.keys().iter().map(|key| key.kvno).collect();
        versions.sort_unstable();
        versions.dedup();
        versions.retain(|version| *version != first.kvno);
        let mut text = format!(
            "The keytab {shown} has version {} of the keys ({})",
            first.kvno,
            types.join(", ")
        );
        if !versions.is_empty() {
            let older: Vec<String> = versions.iter().map(ToString::to_string).collect();
            let _ = write!(text, ", and for old tickets {}", older.join(", "));
        }
        checks.ok("keytab", text + ".");
        true
    }

    /// The advice for a keytab whose keys are not those of the account.
    fn repair(&self) -> String {
        match self.is_membership {
            true => format!("run: frevo domain renew {}", self.realm),
            false => String::from("export the keytab again"),
        }
    }

    /// Checks that the server is called like its machine account.
    fn check_name(&self, checks: &mut Checks) {
        let Some(server) = &self.server_name else { return };
        let [account] = &*self.account.components else { return };
        let Some(account) = account.strip_suffix('$') else { return };
        if account.eq_ignore_ascii_case(server) {
            checks.ok("name", format!("The server is called {server}, like its machine account."));
        } else {
            let text = format!(
                "The server is called {server}, and its machine account {account}: clients that use \
                 NTLM need one name. Write name = {account:?} in [server]."
            );
            checks.add("name", Verdict::Warning, text);
        }
    }

    /// Checks the clock, and what the controller says of the account without a proof; false if a
    /// proof makes no sense.
    fn check_refusal(
        &self,
        checks: &mut Checks,
        controller: &str,
        before: FileTime,
        answer: &KeyAnswer,
    ) -> bool {
        let KeyAnswer::Refused { code, time, etypes, .. } = answer else {
            checks.warn(
                "account",
                format!(
                    "The controller gives tickets of {} to everybody who asks; demand \
                     pre-authentication for the account.",
                    self.account
                ),
            );
            return true;
        };
        self.check_clock(checks, controller, before, *time);
        let account = &self.account;
        match *code {
            KdcErrorCode::PRE_AUTHENTICATION_REQUIRED => {}
            KdcErrorCode::CLIENT_UNKNOWN => {
                checks.fault(
                    "account",
                    format!("The domain has no account {account}; join it again."),
                );
                return false;
            }
            KdcErrorCode::CLIENT_REVOKED => {
                checks.fault(
                    "account",
                    format!(
                        "The account {account} is disabled or locked; enable it in the domain."
                    ),
                );
                return false;
            }
            KdcErrorCode::SERVER_UNKNOWN => {
                self.tell_unknown_service(checks);
                return false;
            }
            code => {
                let text =
                    format!("The controller refuses questions about {account}: error {}.", code.0);
                checks.fault("account", text);
                return false;
            }
        }
        self.check_types(checks, etypes);
        true
    }

    /// Checks the encryption types of the account's keys, as far as the controller names them.
    fn check_types(&self, checks: &mut Checks, etypes: &[i32]) {
        let account = &self.account;
        let names: Vec<String> = etypes
            .iter()
            .map(|number| {
                EncryptionType::from_number(*number)
                    .map_or_else(|| format!("type {number}"), |etype| etype.to_string())
            })
            .collect();
        let has_allowed = etypes.iter().any(|number| {
            EncryptionType::from_number(*number)
                .is_some_and(|etype| self.policy.etypes.contains(&etype))
        });
        let listed = names.join(", ");
        if etypes.is_empty() || has_allowed {
            let types = if names.is_empty() { String::new() } else { format!(" with {listed}") };
            checks.ok("account", format!("The domain has the account {account}{types}."));
        } else {
            checks.fault(
                "account",
                format!(
                    "The account {account} has keys of {listed} only, which this server does not \
                     allow; set msDS-SupportedEncryptionTypes of it to 24, and run frevo domain renew \
                     --older-than 0."
                ),
            );
        }
    }

    fn check_clock(&self, checks: &mut Checks, controller: &str, before: FileTime, time: FileTime) {
        let seconds = |time: FileTime| time.to_unix().0;
        let differs = seconds(time) - seconds(before);
        let most = self.policy.clock_skew;
        let amount = counted(differs.unsigned_abs(), "second");
        let way = if differs > 0 { "ahead of" } else { "behind" };
        if differs.unsigned_abs() <= 1 {
            checks.ok("clock", format!("The clock of {controller} shows the time of this server."));
        } else if differs.unsigned_abs() <= u64::from(most) {
            let text = format!(
                "The clock of {controller} is {amount} {way} this server; up to {most} are allowed."
            );
            let verdict = if differs.unsigned_abs() > 30 { Verdict::Warning } else { Verdict::Ok };
            checks.add("clock", verdict, text);
        } else {
            checks.fault(
                "clock",
                format!(
                    "The clock of {controller} is {amount} {way} this server, and only {most} are \
                     allowed; set both by NTP."
                ),
            );
        }
    }

    /// Proves the newest key, and opens a ticket for the service.
    fn check_keys(&self, checks: &mut Checks, at: &Controller, now: &impl Fn() -> FileTime) {
        let newest = self.newest();
        let Some(proof) = newest.first() else { return };
        let keys = self.keys();
        let etypes = &self.policy.etypes;
        let asking = Asking {
            controller: at,
            client: &self.account,
            server: &self.service,
            etypes,
            keys: &keys,
        };
        let answer = match asking.ask(Some(&proof.key), now()) {
            Ok(answer) => answer,
            Err(error) => {
                return checks.fault("keys", format!("{at} does not answer any more: {error}."));
            }
        };
        let path = self.path.display();
        match answer {
            KeyAnswer::Ticket { client_kvno, server_kvno, server_etype, is_opened, .. } => {
                let kvno = client_kvno.unwrap_or(proof.kvno);
                if kvno == proof.kvno {
                    checks.ok(
                        "keys",
                        format!("The controller accepts the keys of the keytab, and has version {kvno} too."),
                    );
                } else {
                    checks.warn(
                        "keys",
                        format!(
                            "The controller accepts the keys of the keytab, but calls them version \
                             {kvno}, not {}.",
                            proof.kvno
                        ),
                    );
                }
                self.tell_service(checks, server_kvno, server_etype, is_opened);
            }
            KeyAnswer::Refused { code: KdcErrorCode::PRE_AUTHENTICATION_FAILED, .. } => {
                checks.fault(
                    "keys",
                    format!(
                        "The controller does not accept version {} of the keys in {path}: a change of \
                         the password of {} was interrupted, or another program made it; {}.",
                        proof.kvno,
                        self.account,
                        self.repair()
                    ),
                );
            }
            KeyAnswer::Refused { code: KdcErrorCode::SERVER_UNKNOWN, .. } => {
                self.tell_unknown_service(checks);
            }
            KeyAnswer::Refused { code: KdcErrorCode::CLIENT_REVOKED, .. } => {
                self.tell_disabled(checks);
            }
            KeyAnswer::Refused { code: KdcErrorCode::SKEW, .. } => checks.fault(
                "keys",
                String::from("The controller does not look at the keys before the clocks agree."),
            ),
            KeyAnswer::Refused { code, .. } => checks.fault(
                "keys",
                format!(
                    "The controller refuses the account {} with error {}.",
                    self.account, code.0
                ),
            ),
        }
    }

    fn tell_service(&self, checks: &mut Checks, kvno: Option<u32>, etype: i32, is_opened: bool) {
        let service = &self.service;
        let name = EncryptionType::from_number(etype);
        let etype = name.map_or_else(|| format!("type {etype}"), |etype| etype.to_string());
        let version = kvno.map_or_else(String::new, |kvno| format!(" version {kvno}"));
        if is_opened {
            checks.ok(
                "service",
                format!("Clients get tickets for {service} ({etype}{version}), and this server opens them."),
            );
        } else {
            checks.fault(
                "service",
                format!(
                    "Clients get tickets for {service} ({etype}{version}), and the keytab has no key \
                     that opens them: the name belongs to another account, or the keytab is old."
                ),
            );
        }
    }

    fn tell_disabled(&self, checks: &mut Checks) {
        let account = &self.account;
        let text = format!("The account {account} is disabled or locked; enable it in the domain.");
        checks.fault("account", text);
    }

    fn tell_unknown_service(&self, checks: &mut Checks) {
        let service = &self.service;
        let name = service.components.join("/");
        let account = self.account.components.join("/");
        checks.fault(
            "service",
            format!(
                "The domain does not know the service {service}, so clients use NTLM; add the name to \
                 the account: setspn -S {name} {account}"
            ),
        );
    }

    /// Trusted domains, which winbind alone knows here.
    fn check_trusts(&self, checks: &mut Checks) {
        let Some(program) = tools::installed("wbinfo") else { return };
        let output = Command::new(program)
            .args(["--trusted-domains", "--verbose"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let Ok(output) = output.map(|output| output.stdout) else { return };
        let trusts = trusts(&String::from_utf8_lossy(&output));
        if !trusts.is_empty() {
            checks.ok("trusts", format!("winbind knows the domains {}.", trusts.join(", ")));
        }
    }
}

/// Checks what a logon by NTLM needs of winbind: the name and the groups of a user. Every domain has
/// the user 500, its administrator.
fn check_winbind(checks: &mut Checks) {
    let said = own_domain().map_err(|error| error.to_string()).and_then(|domain| {
        let domain = domain.ok_or("winbind does not know its own domain")?;
        let user = domain.sid.with_rid(500).ok_or("the SID of the domain is too long")?;
        for question in ["--sid-to-name", "--user-sids"] {
            wbinfo(&format!("{question}={user}")).map_err(|error| error.to_string())?;
        }
        Ok(domain.name)
    });
    match said {
        Ok(domain) => checks.ok(
            "winbind",
            format!("winbind tells the groups of users of {domain}, as logons by NTLM need it."),
        ),
        Err(why) => checks.fault(
            "winbind",
            format!(
                "Logons by NTLM fail, because winbind does not tell the groups of a user ({why}); \
                 check that winbindd runs with ranges (idmap config) in its smb.conf, then run: net \
                 cache flush"
            ),
        ),
    }
}

/// The domains that `wbinfo --trusted-domains --verbose` lists, without those of the host itself.
fn trusts(said: &str) -> Vec<String> {
    let rows = said.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, rest) = (words.next()?, line);
        (!rest.contains("Local")).then(|| name.to_owned())
    });
    rows.collect()
}

struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, name: &'static str, verdict: Verdict, sentence: String) {
        self.0.push(Check { name, verdict, sentence });
    }

    fn ok(&mut self, name: &'static str, sentence: String) {
        self.add(name, Verdict::Ok, sentence);
    }

    fn warn(&mut self, name: &'static str, sentence: String) {
        self.add(name, Verdict::Warning, sentence);
    }

    fn fault(&mut self, name: &'static str, sentence: String) {
        self.add(name, Verdict::Fault, sentence);
    }
}

/// Takes the findings about the cluster's account in a realm.
pub(super) fn of_cluster(realm: &str, found: &mut Vec<OfRealm>) -> Vec<Check> {
    let check = |found: OfRealm| {
        let verdict = if found.judged.is_fault { Verdict::Fault } else { Verdict::Warning };
        let mut letters = found.judged.text.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let sentence = first.into_iter().chain(letters).chain(['.']).collect();
        Check { name: "cluster", verdict, sentence }
    };
    found.extract_if(.., |found| found.realm == realm).map(check).collect()
}

/// Prints the checks of a realm, and returns the number of faults.
pub(super) fn report(realm: &str, checks: &[Check]) -> Result<usize, Failure> {
    let mut text = String::new();
    if !is_json() {
        let _ = writeln!(text, "{realm}");
    }
    for Check { name, verdict, sentence } in checks {
        let word = verdict.word();
        if is_json() {
            let object = json!({
                "realm": realm, "check": name, "verdict": word, "message": sentence,
            });
            let _ = writeln!(text, "{object}");
        } else {
            let _ = writeln!(text, "  {word:7} {sentence}");
        }
    }
    print_text(&text)?;
    Ok(checks.iter().filter(|check| check.verdict == Verdict::Fault).count())
}

/// The outcome of the command.
pub(super) fn done(faults: usize) -> Done {
    match faults {
        0 => Ok(()),
        faults => Err(Failure::new(Exit::Failed, format!("{} found", counted(faults, "fault")))),
    }
}

#[cfg(test)]
mod tests;
