//! `frevo domain renew`: new passwords of machine accounts, and the repair of changes that were
//! interrupted.

use std::path::Path;

use super::arguments::{Renew, Tool};
use super::membership::{Membership, keytab_in, read_keytab_in};
use super::new_password::{Change, KeptPassword};
use super::next_keytab::NextKeytab;
use super::shared::{ClusterAccounts, SharedAccount};
use super::status::Subject;
use super::tools::{Calls, Credentials};
use super::{Home, ask_password, each, now};
use crate::changes::told;
use crate::cluster::ClusterKey;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;

/// A machine account whose password may be changed.
struct Account<'a> {
    member: &'a Membership,
    /// The account in etcd, for one of a cluster.
    shared: Option<SharedAccount<'a>>,
}

impl Account<'_> {
    /// Has the other nodes of a cluster know the password that was chosen. Returns false if another node has
    /// begun a change, which this node knows then.
    fn begin(&self) -> Result<bool, Failure> {
        let Some(shared) = &self.shared else { return Ok(true) };
        let is_first = shared.push()?;
        if !is_first {
            shared.pull()?;
        }
        Ok(is_first)
    }
}

impl Home {
    pub(super) fn renew(&self, renewal: &Renew) -> Done {
        self.make_private()?;
        let _alone = self.lock()?;
        // A node to which the key of its cluster was copied may have no more than the key yet.
        if ClusterKey::read(&self.state_dir)?.is_some()
            && let Ok(accounts) = ClusterAccounts::of(self)
        {
            let realms = accounts.all().unwrap_or_default().into_iter().map(|kept| kept.realm);
            realms.for_each(|realm| _ = accounts.in_realm(&realm).pull());
        }
        let members = Membership::all(&self.state_dir, renewal.realm.as_ref())?;
        each(&members, |member| {
            if member.cluster.is_none() {
                return self.renew_one(&Account { member, shared: None }, renewal);
            }
            let accounts = ClusterAccounts::of(self)?;
            let shared = accounts.in_realm(&member.realm);
            if !shared.pull()? {
                self.restore(member, &shared)?;
            }
            self.renew_one(&Account { member, shared: Some(shared) }, renewal)
        })
    }

    /// Stores this node's copy of the cluster's account in an etcd that has lost it. Fails if the cluster has
    /// left the domain: a controller does not accept the keys then.
    fn restore(&self, member: &Membership, shared: &SharedAccount<'_>) -> Done {
        let Membership { realm, computer, .. } = member;
        let keytab = keytab_in(&self.state_dir);
        if self.is_accepted(member, &keytab)? == Some(true) && shared.push()? {
            let text =
                format!("{realm}: etcd had lost the account {computer}$; it has it again.\n");
            return told(true, &text);
        }
        let text = format!(
            "{realm}: etcd has no account of the cluster: the cluster has left the domain; run here: frevo \
             domain leave {realm} --cluster"
        );
        Err(Failure::new(Exit::NotFound, text))
    }

    /// Gives a machine account a new password, unless it is not old. Ends a change that was interrupted.
    fn renew_one(&self, account: &Account<'_>, renewal: &Renew) -> Done {
        let member = account.member;
        let keytab = keytab_in(&self.state_dir);
        if let Some(kept) = KeptPassword::read(member, &self.state_dir)? {
            return match self.set_password(account, &kept) {
                Ok(()) => told(true, &interrupted(member)),
                Err(failure) if self.is_accepted(member, &keytab)? != Some(false) => Err(failure),
                Err(_) => self.repair(account, renewal),
            };
        }
        if self.is_accepted(member, &keytab)? == Some(false) {
            return self.repair(account, renewal);
        }
        let age = read_keytab_in(&self.state_dir, &keytab)?.and_then(|keytab| {
            let ours = keytab.entries.iter().filter(|e| e.key.principal.realm == member.realm);
            let newest = ours.map(|entry| entry.written.to_unix().0).max()?;
            u64::try_from(now().to_unix().0.saturating_sub(newest)).ok()
        });
        let days = age.map(|seconds| seconds / 86_400);
        if let Some(days) = days.filter(|days| *days < u64::from(renewal.older_than)) {
            let days = counted(days, "day");
            let text = format!("{}: the password is {days} old; nothing to do.\n", member.realm);
            return told(false, &text);
        }
        let calls = self.calls(member, &keytab);
        let may_have_begun = member.tool == Tool::Net && account.shared.is_none();
        if may_have_begun && calls.has_begun() && self.finish_change_of_net(member)? {
            return told(true, &interrupted(member));
        }
        let chosen = KeptPassword::choose(member, &self.state_dir)?;
        if !account.begin()? {
            let text = format!("{}: another node changes the password now.\n", member.realm);
            return told(false, &text);
        }
        self.set_password(account, &chosen)?;
        let text = format!(
            "{}: the password of {}$ is new. A running server reads the keytab by itself.\n",
            member.realm, member.computer
        );
        told(true, &text)
    }

    /// Gives a password that is kept to the controller, its keys to the keytab, and it to `net`.
    fn set_password(&self, account: &Account<'_>, kept: &KeptPassword) -> Done {
        let member = account.member;
        let change = Change { member, state_dir: &self.state_dir, password: kept.text() };
        let keys = change.make()?;
        change.write(&keys)?;
        self.calls(member, &keytab_in(&self.state_dir)).keep(kept.text())?;
        KeptPassword::forget(member, &self.state_dir)?;
        self.end(account)
    }

    /// Has the other nodes of a cluster know the end of a change.
    fn end(&self, account: &Account<'_>) -> Done {
        let shared = account.shared.as_ref();
        shared.map_or(Ok(()), |shared| self.settle(account.member, shared))
    }

    /// The calls of a membership's program, on this keytab.
    pub(super) fn calls<'a>(&'a self, member: &'a Membership, keytab: &'a Path) -> Calls<'a> {
        Calls { member, state_dir: &self.state_dir, keytab, idmaps: self.idmaps() }
    }

    /// Asks a controller if it accepts the newest key of a membership in a keytab. None if no
    /// controller answers.
    pub(super) fn is_accepted(
        &self,
        member: &Membership,
        keytab: &Path,
    ) -> Result<Option<bool>, Failure> {
        let Some(keys) = read_keytab_in(&self.state_dir, keytab)? else { return Ok(Some(false)) };
        let policy =
            self.config.as_ref().map(|config| config.kerberos.policy()).unwrap_or_default();
        Ok(Subject::of_membership(member, keytab.to_owned(), keys, policy).is_accepted(now))
    }

    /// Mends a keytab whose keys the controller does not accept: with the keys of a change that was
    /// interrupted, or else with a new password that an administrator sets.
    fn repair(&self, account: &Account<'_>, renewal: &Renew) -> Done {
        let member = account.member;
        let Membership { realm, computer, tool, .. } = member;
        let found = match tool {
            // No earlier version had a program change the account of a cluster.
            _ if account.shared.is_some() => Ok(false),
            Tool::Net => self.finish_change_of_net(member),
            Tool::Adcli => self.finish_change_of_adcli(account),
        };
        if matches!(found, Ok(true)) {
            KeptPassword::forget(member, &self.state_dir)?;
            return told(true, &interrupted(member));
        }
        let Some(administrator) = renewal.administrator() else {
            let why = found.err().map_or_else(String::new, |failure| format!(" ({failure})"));
            let text = format!(
                "{realm}: the controller does not accept the keys of {computer}$ in the keytab: a change \
                 of the password was interrupted, or another program made it{why}; let an administrator \
                 of the domain set a new one: frevo domain renew {realm} -U Administrator"
            );
            return Err(Failure::new(Exit::Failed, text));
        };
        let password = ask_password(&administrator, realm)?;
        let by = Credentials { user: &administrator.user, password: &password };
        self.make_account(member, &by)?;
        self.end(account)?;
        let text = format!("{realm}: {} has set a new password of {computer}$.\n", by.user);
        told(true, &text)
    }

    /// Writes the keys of the password that `net` keeps, which an earlier version had it give to a
    /// controller. Returns false if the controller accepts none of them.
    fn finish_change_of_net(&self, member: &Membership) -> Result<bool, Failure> {
        let next = NextKeytab::begin(member, &self.state_dir)?;
        let calls = self.calls(member, next.path());
        calls.write_smb_conf()?;
        // `net` may have ended before it wrote the keytab, or after only the controller had the
        // password.
        let kept = calls.net_keytab();
        if kept.is_err()
            || calls.has_begun()
            || self.is_accepted(member, next.path())? != Some(true)
        {
            calls.finish_change_of_net()?;
            calls.net_keytab()?;
        }
        let is_accepted = self.is_accepted(member, next.path())? == Some(true);
        if is_accepted {
            next.finish()?;
        }
        Ok(is_accepted)
    }

    /// Takes the keys that an earlier version had `adcli` write, if it was interrupted, and sets another
    /// password with them: some may be missing. Returns false if there are none, or the controller does not
    /// accept them.
    fn finish_change_of_adcli(&self, account: &Account<'_>) -> Result<bool, Failure> {
        let member = account.member;
        let next = NextKeytab::left(member, &self.state_dir);
        if self.is_accepted(member, next.path())? != Some(true) {
            return Ok(false);
        }
        next.finish()?;
        self.set_password(account, &KeptPassword::choose(member, &self.state_dir)?)?;
        Ok(true)
    }
}

/// Tells that a change that was interrupted is at its end.
fn interrupted(Membership { realm, computer, .. }: &Membership) -> String {
    format!(
        "{realm}: an earlier change of the password of {computer}$ was interrupted; the keytab has the new \
         keys now.\n"
    )
}
