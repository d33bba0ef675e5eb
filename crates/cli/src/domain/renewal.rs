//! `frevo domain renew`: new passwords of machine accounts, and the repair of changes that were
//! interrupted.

use std::path::Path;

use super::arguments::{Renew, Tool};
use super::membership::{Membership, keytab_in, read_keytab_in};
use super::new_password::{Change, KeptPassword};
use super::next_keytab::NextKeytab;
use super::status::Subject;
use super::tools::{Calls, Credentials};
use super::{Home, ask_password, each, now};
use crate::console::print_text;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;

impl Home {
    pub(super) fn renew(&self, renewal: &Renew) -> Done {
        self.make_private()?;
        let _alone = self.lock()?;
        let members = Membership::all(&self.state_dir, renewal.realm.as_ref())?;
        each(&members, |member| self.renew_one(member, renewal))
    }

    /// Gives a machine account a new password, unless it is not old. Ends a change that was interrupted.
    fn renew_one(&self, member: &Membership, renewal: &Renew) -> Done {
        let keytab = keytab_in(&self.state_dir);
        if let Some(kept) = KeptPassword::read(member, &self.state_dir)? {
            return match self.set_password(member, &kept) {
                Ok(()) => print_text(&interrupted(member)),
                Err(failure) if self.is_accepted(member, &keytab)? != Some(false) => Err(failure),
                Err(_) => self.repair(member, renewal),
            };
        }
        if self.is_accepted(member, &keytab)? == Some(false) {
            return self.repair(member, renewal);
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
            return print_text(&text);
        }
        let calls = self.calls(member, &keytab);
        if member.tool == Tool::Net && calls.has_begun() && self.finish_change_of_net(member)? {
            return print_text(&interrupted(member));
        }
        self.set_password(member, &KeptPassword::choose(member, &self.state_dir)?)?;
        let text = format!(
            "{}: the password of {}$ is new. A running server reads the keytab by itself.\n",
            member.realm, member.computer
        );
        print_text(&text)
    }

    /// Gives a password that is kept to the controller, its keys to the keytab, and it to `net`.
    fn set_password(&self, member: &Membership, kept: &KeptPassword) -> Done {
        let change = Change { member, state_dir: &self.state_dir, password: kept.text() };
        let keys = change.make()?;
        change.write(&keys)?;
        self.calls(member, &keytab_in(&self.state_dir)).keep(kept.text())?;
        KeptPassword::forget(member, &self.state_dir)
    }

    /// The calls of a membership's program, on this keytab.
    pub(super) fn calls<'a>(&'a self, member: &'a Membership, keytab: &'a Path) -> Calls<'a> {
        Calls { member, state_dir: &self.state_dir, keytab, idmaps: self.idmaps() }
    }

    /// Asks a controller if it accepts the newest key of a membership in a keytab. None if no
    /// controller answers.
    fn is_accepted(&self, member: &Membership, keytab: &Path) -> Result<Option<bool>, Failure> {
        let Some(keys) = read_keytab_in(&self.state_dir, keytab)? else { return Ok(Some(false)) };
        let policy =
            self.config.as_ref().map(|config| config.kerberos.policy()).unwrap_or_default();
        Ok(Subject::of_membership(member, keytab.to_owned(), keys, policy).is_accepted(now))
    }

    /// Mends a keytab whose keys the controller does not accept: with the keys of a change that was
    /// interrupted, or else with a new password that an administrator sets.
    fn repair(&self, member: &Membership, renewal: &Renew) -> Done {
        let Membership { realm, computer, tool, .. } = member;
        let found = match tool {
            Tool::Net => self.finish_change_of_net(member),
            Tool::Adcli => self.finish_change_of_adcli(member),
        };
        if matches!(found, Ok(true)) {
            KeptPassword::forget(member, &self.state_dir)?;
            return print_text(&interrupted(member));
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
        let next = NextKeytab::begin(member, &self.state_dir)?;
        self.calls(member, next.path()).join(&by, member.ou.as_deref())?;
        next.finish()?;
        KeptPassword::forget(member, &self.state_dir)?;
        let text = format!("{realm}: {} has set a new password of {computer}$.\n", by.user);
        print_text(&text)
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
    fn finish_change_of_adcli(&self, member: &Membership) -> Result<bool, Failure> {
        let next = NextKeytab::left(member, &self.state_dir);
        if self.is_accepted(member, next.path())? != Some(true) {
            return Ok(false);
        }
        next.finish()?;
        self.set_password(member, &KeptPassword::choose(member, &self.state_dir)?)?;
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
