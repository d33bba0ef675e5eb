//! `frevo domain`: the membership of this server in domains.

pub(crate) mod arguments;
mod kdc;
pub(crate) mod membership;
mod net_secrets;
mod new_password;
mod next_keytab;
mod of_cluster;
mod renewal;
mod shared;
mod status;
mod tools;

pub(crate) use membership::forget_keys;
pub(crate) use shared::place_keys;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_auth::Zeroizing;
use frevo_client::internal::Kdcs;
use frevo_config::{Config, IdmapSection, Realm, ServerName};
use frevo_wire::dtyp::FileTime;

use self::arguments::{Administrator, Domain, DomainCommand, Join, Leave};
use self::membership::{Membership, keytab_in, read_keytab_in};
use self::new_password::KeptPassword;
use self::next_keytab::NextKeytab;
use self::status::{Check, Subject, Verdict};
use self::tools::Credentials;
use crate::changes::told;
use crate::console::tell_failure;
use crate::exit::{Done, Exit, Failure};
use crate::{accounts, administrators, config_checks, keytab, passwords, secret_file, state};

/// The keytab of the host, which other programs use.
const HOST_KEYTAB: &str = "/etc/krb5.keytab";
/// Longest name of a machine account: a NetBIOS name.
const COMPUTER_NAME_LEN: usize = 15;

pub(crate) fn run(domain: &Domain) -> Done {
    let config = domain.place.config.as_deref().map(config_checks::read).transpose()?;
    let state_dir = match (&domain.place.state_dir, &config) {
        (Some(dir), _) => dir.clone(),
        (None, Some(config)) => state::dir_of(config),
        (None, None) => state::default_dir(),
    };
    let state_dir = std::path::absolute(&state_dir)
        .map_err(Failure::failed(format!("cannot find {}", state_dir.display())))?;
    let home = Home { state_dir, config };
    match &domain.command {
        DomainCommand::Join(join) if join.cluster => home.join_cluster(join),
        DomainCommand::Join(join) => home.join(join),
        DomainCommand::Leave(leave) => home.leave(leave),
        DomainCommand::Status { realm, .. } => home.status(realm.as_ref()),
        DomainCommand::Renew(renew) => home.renew(renew),
    }
}

/// The state directory and the configuration of the server whose membership it is.
struct Home {
    state_dir: PathBuf,
    config: Option<Config>,
}

impl Home {
    fn join(&self, join: &Join) -> Done {
        let member = self.member(join)?;
        refuse_double(&member)?;
        refuse_address(&member)?;
        let password = ask_password(&join.administrator, &member.realm)?;
        self.make_private()?;
        let _alone = self.lock()?;
        let by = Credentials { user: &join.administrator.user, password: &password };
        self.make_account(&member, &by)?;
        told(true, &self.joined(&member))
    }

    /// The membership that a join makes.
    fn member(&self, join: &Join) -> Result<Membership, Failure> {
        let realm = join.realm.as_str();
        let cluster = self.cluster_name().filter(|_| join.cluster);
        Ok(Membership {
            realm: realm.to_uppercase(),
            domain: join.short_name.clone().unwrap_or_else(|| short_name(realm)).to_uppercase(),
            computer: self.computer_name(join)?,
            host: self.host_name(join),
            controller: join.controller.clone(),
            ou: join.ou.clone(),
            tool: tools::find(join.with)?,
            cluster: cluster.map(str::to_owned),
            names: Vec::new(),
        })
    }

    /// Has a controller make the machine account, or give it another password and the names of `member`.
    fn make_account(&self, member: &Membership, by: &Credentials<'_>) -> Done {
        let dir = Membership::dir(&self.state_dir, &member.realm);
        let is_new = !dir.exists();
        state::make_dir(&dir)?;
        let next = NextKeytab::begin(member, &self.state_dir)?;
        let joined = self.calls(member, next.path()).join(by, member.ou.as_deref());
        joined.inspect_err(|_| {
            if is_new {
                // The folder of a failed join is of no use, and would be taken for a membership.
                let _ = std::fs::remove_dir_all(&dir);
            }
        })?;
        member.write(&self.state_dir)?;
        if !member.names.is_empty() {
            next.drop_names()?;
        }
        next.finish()?;
        KeptPassword::forget(member, &self.state_dir)
    }

    /// Tells an administrator the next steps after a join.
    fn joined(&self, member: &Membership) -> String {
        let keytab = keytab_in(&self.state_dir);
        let Membership { realm, computer, host, .. } = member;
        let mut text = format!("Joined {realm} as {computer}$.\n");
        let named = self.config.as_ref().and_then(keytab::path);
        if named != Some(&*keytab) {
            text.push_str(&format!(
                "Add to the configuration, then reload the server:\n\n[kerberos]\nkeytab = {:?}\n\n",
                keytab.display().to_string()
            ));
        }
        text.push_str(&format!(
            "Clients connect by the name {host}.\nCheck the membership: frevo domain status\n"
        ));
        text
    }

    /// The ranges of numbers of the configuration.
    fn idmaps(&self) -> &[IdmapSection] {
        self.config.as_ref().map_or(&[], |config| &config.idmaps)
    }

    fn leave(&self, leave: &Leave) -> Done {
        let administrator = &leave.administrator;
        let all = Membership::all(&self.state_dir, leave.realm.as_ref())?;
        let [member] = &*all else {
            let text = match all.len() {
                0 => String::from("this server is no member of a domain"),
                _ => String::from("this server is a member of several domains; name the realm"),
            };
            return Err(Failure::new(Exit::Usage, text));
        };
        match (&member.cluster, leave.cluster) {
            (None, false) => {}
            (Some(_), true) => return self.leave_cluster(member, administrator),
            (Some(cluster), false) => {
                let text = format!(
                    "all nodes of the cluster {cluster} use this account; add --cluster to have the whole \
                     cluster leave {}",
                    member.realm
                );
                return Err(Failure::new(Exit::Usage, text));
            }
            (None, true) => {
                let text = format!("the account in {} is this server's alone", member.realm);
                return Err(Failure::new(Exit::Usage, text));
            }
        }
        let password = ask_password(administrator, &member.realm)?;
        let by = Credentials { user: &administrator.user, password: &password };
        let _alone = self.lock()?;
        self.calls(member, &keytab_in(&self.state_dir)).leave(&by)?;
        member.forget(&self.state_dir)?;
        let text = format!(
            "Left {}. Remove the keytab from [kerberos] of the configuration, unless other realms use \
             it.\n",
            member.realm
        );
        told(true, &text)
    }

    fn status(&self, realm: Option<&Realm>) -> Done {
        let mut of_cluster = self.cluster_findings();
        // A node that has nothing of the cluster's account is told so, whatever else is missing.
        let mut subjects = match self.subjects(realm) {
            Err(_) if !of_cluster.is_empty() => Vec::new(),
            subjects => subjects?,
        };
        let host = accounts::host_name();
        for subject in &mut subjects {
            let of = |config: &Config| config.server.name.as_ref().unwrap_or(&host).to_string();
            subject.server_name = self.config.as_ref().map(of);
            let domains = self.config.iter().flat_map(|config| &config.server.winbind_domains);
            subject.passes_ntlm = domains.flat_map(|domains| domains.get_ref()).next().is_some();
        }
        if subjects.is_empty() && of_cluster.is_empty() {
            let text = "this server is no member of a domain, and [kerberos] names no keytab; join \
                        one: frevo domain join REALM";
            return Err(Failure::new(Exit::NotFound, text));
        }
        let mut faults = 0;
        for subject in &subjects {
            let mut checks = subject.check(now);
            checks.extend(KeptPassword::check(&subject.realm, &self.state_dir));
            checks.extend(self.administrators(&subject.realm));
            checks.extend(status::of_cluster(&subject.realm, &mut of_cluster));
            faults += status::report(&subject.realm, &checks)?;
        }
        // The accounts of which this node has nothing.
        while let Some(realm) = of_cluster.first().map(|found| found.realm.clone()) {
            let checks = status::of_cluster(&realm, &mut of_cluster);
            faults += status::report(&realm, &checks)?;
        }
        status::done(faults)
    }

    /// Tells who administers the server. None where users of the realm are accounts.
    fn administrators(&self, realm: &str) -> Option<Check> {
        let default = Config::default();
        let config = self.config.as_ref().unwrap_or(&default);
        if config.kerberos.realms.is_some() {
            return None;
        }
        let file = match &self.config {
            Some(config) => state::users_file_of(config),
            None => self.state_dir.join(state::USERS),
        };
        // A fault of the account file is told by `frevo check`.
        let file = accounts::read(&file).unwrap_or_default();
        let sentence = administrators::sentence(config, &file, &[realm.to_owned()]);
        Some(Check { name: "administrators", verdict: Verdict::Ok, sentence })
    }

    /// The memberships, or else the realms of the keytab that the configuration names.
    fn subjects(&self, realm: Option<&Realm>) -> Result<Vec<Subject>, Failure> {
        let policy =
            self.config.as_ref().map(|config| config.kerberos.policy()).unwrap_or_default();
        let named = self.config.as_ref().and_then(keytab::path);
        let own = keytab_in(&self.state_dir);
        let path = named.unwrap_or(&own);
        let missing = || {
            let text = format!("there is no keytab {}; join the domain again", path.display());
            Failure::new(Exit::NotFound, text)
        };
        let is_member = |member: &Membership| realm.is_none_or(|r| r.as_str() == member.realm);
        let members: Vec<Membership> =
            Membership::all(&self.state_dir, None)?.into_iter().filter(is_member).collect();
        if members.is_empty() {
            let Some(path) = named else { return Ok(Vec::new()) };
            let keytab = read_keytab_in(&self.state_dir, path)?.ok_or_else(missing)?;
            let mut subjects = Subject::of_keytab(path, &keytab, &policy);
            subjects.retain(|subject| realm.is_none_or(|realm| realm.as_str() == subject.realm));
            return Ok(subjects);
        }
        let keytab = read_keytab_in(&self.state_dir, path)?.ok_or_else(missing)?;
        let subject = |member| {
            Subject::of_membership(member, path.to_owned(), keytab.clone(), policy.clone())
        };
        Ok(members.iter().map(subject).collect())
    }

    /// Has the programs make files that their owner alone can read.
    fn make_private(&self) -> Done {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        state::make_dir(&self.state_dir)
    }

    /// Waits until no other command changes keytabs. A program that a command has started holds the lock
    /// until it ends, also when the command was killed.
    fn lock(&self) -> Result<secret_file::Lock, Failure> {
        let keytab = keytab_in(&self.state_dir);
        if let Some(dir) = keytab.parent() {
            state::make_dir(dir)?;
        }
        let lock = secret_file::lock(&keytab)?;
        lock.share_with_programs()
            .map_err(Failure::failed("cannot share the lock of the keytab"))?;
        Ok(lock)
    }

    /// The name of the cluster that this server is a node of.
    fn cluster_name(&self) -> Option<&str> {
        let name = self.config.as_ref().and_then(|config| config.cluster.name.as_ref());
        name.map(|name| &*name.0)
    }

    /// The name by which clients know the server, or the cluster that it joins with.
    fn name_for(&self, join: &Join) -> String {
        let cluster = self.cluster_name().filter(|_| join.cluster);
        cluster.map_or_else(|| self.server_name(), str::to_owned)
    }

    fn computer_name(&self, join: &Join) -> Result<String, Failure> {
        let name = join.computer_name.clone().unwrap_or_else(|| self.name_for(join));
        let name = name.to_uppercase();
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > COMPUTER_NAME_LEN || !name.chars().all(is_good) {
            let text = format!(
                "{name:?} is not the name of a machine account: at most {COMPUTER_NAME_LEN} letters, \
                 digits and hyphens; give one with --computer-name"
            );
            return Err(Failure::new(Exit::Usage, text));
        }
        Ok(name)
    }

    fn server_name(&self) -> String {
        let configured = self.config.as_ref().and_then(|config| config.server.name.as_ref());
        configured.map_or_else(accounts::host_name, ServerName::clone).as_str().to_owned()
    }

    fn host_name(&self, join: &Join) -> String {
        let domain = join.realm.as_str().to_lowercase();
        let own = || format!("{}.{domain}", self.name_for(join).to_lowercase());
        join.host_name.clone().unwrap_or_else(own).to_lowercase()
    }
}

/// Does something for each membership, also after one for which it fails. Returns the first failure;
/// the others are told.
fn each(members: &[Membership], mut act: impl FnMut(&Membership) -> Done) -> Done {
    let mut done = Ok(());
    for member in members {
        match (act(member), &done) {
            (Err(failure), Ok(())) => done = Err(failure),
            (Err(failure), Err(_)) => tell_failure(&failure),
            (Ok(()), _) => {}
        }
    }
    done
}

/// Refuses the name of a membership that other programs of this host use: a join sets a new
/// password for the account.
fn refuse_double(member: &Membership) -> Done {
    // Joining a domain needs to read the host's keytab, so a user who cannot read it has not made
    // the join.
    let Ok(bytes) = std::fs::read(HOST_KEYTAB) else { return Ok(()) };
    let Ok(keytab) = frevo_auth::kerberos::Keytab::parse(&bytes) else { return Ok(()) };
    let account = member.principal();
    let is_same = |name: &frevo_auth::kerberos::Principal| {
        name.realm == account.realm && name.components == account.components
    };
    if !keytab.entries.iter().any(|entry| is_same(&entry.key.principal)) {
        return Ok(());
    }
    let text = format!(
        "this host is joined as {account} already ({HOST_KEYTAB}), and a second join would end that; use \
         another --computer-name"
    );
    Err(Failure::new(Exit::Failed, text))
}

/// Refuses an address in place of a controller's name: the server asks this controller for names, with
/// a ticket.
fn refuse_address(member: &Membership) -> Done {
    let Some(controller) = &member.controller else { return Ok(()) };
    let host = Kdcs::named(controller).map(|(host, _)| host);
    if host.as_deref().is_some_and(|host| host.parse::<IpAddr>().is_err()) {
        return Ok(());
    }
    let text = format!(
        "{controller:?} cannot be the controller, because there are no tickets for addresses; give its \
         full name: --controller dc1.{}",
        member.realm.to_lowercase()
    );
    Err(Failure::new(Exit::Usage, text))
}

fn ask_password(administrator: &Administrator, realm: &str) -> Result<Zeroizing<String>, Failure> {
    let user = &administrator.user;
    if administrator.password.is_named() {
        return passwords::ask(&administrator.password, user);
    }
    let password = passwords::prompt(&format!("Password of {user}@{realm}: "))?;
    passwords::check_new(&password)
        .map_err(|why| Failure::new(Exit::Auth, format!("the password cannot be used: {why}")))?;
    Ok(password)
}

/// The first part of a realm, which is mostly the short name of the domain.
fn short_name(realm: &str) -> String {
    realm.split('.').next().unwrap_or(realm).chars().take(COMPUTER_NAME_LEN).collect()
}

fn now() -> FileTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix(i64::try_from(since.as_secs()).unwrap_or(0), since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::arguments::Tool;
    use super::*;

    /// A membership that fails leaves no later one out.
    #[test]
    fn each_membership_has_its_turn() {
        let member = |realm: &str| Membership {
            realm: realm.into(),
            domain: "A".into(),
            computer: "files".into(),
            host: "files.a.test".into(),
            controller: None,
            ou: None,
            tool: Tool::Adcli,
            cluster: None,
            names: Vec::new(),
        };
        let members = ["A", "B", "C", "D"].map(member);
        let mut seen = Vec::new();
        let done = each(&members, |member| {
            seen.push(member.realm.clone());
            match &*member.realm {
                "A" | "D" => Ok(()),
                realm => Err(Failure::new(Exit::Failed, realm)),
            }
        });
        assert_eq!(seen, ["A", "B", "C", "D"]);
        assert_eq!(done.unwrap_err().message, "B");
        assert!(each(&members, |_| Ok(())).is_ok());
    }
}
