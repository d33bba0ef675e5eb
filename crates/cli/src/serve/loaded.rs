//! The state that a reload replaces: configuration, accounts, open shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frevo_admin::UnservedShare;
use frevo_config::ShareSection;
use frevo_dfs::Namespace;
use frevo_server::account_directory::AccountDirectory;
use frevo_server::audit::{Audit, ShareAudit};
use frevo_server::share::UserFolders;
use frevo_server::user_map::Mapped;
use frevo_server::{Settings, Share, SharedAccounts};
use frevo_store::Vfs;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;

use crate::arguments::Serve;
use crate::configured::folder;
use crate::configured::identities::{Identities, identities};
use crate::exit::{Done, Exit, Failure};
use crate::keytab::{self, Keys};
use crate::password_rules::PasswordRules;
use crate::share_guards::ShareGuards;
use crate::{accounts, administrators, config_checks, configured, machine_sid, state};

use super::directory_accounts::DirectoryAccounts;
use super::live_accounts::LiveAccounts;
use super::plan::Plan;
use super::run_accounts::Logon;

/// A share that is open, with what it was made of.
pub(super) struct OpenShare {
    pub(super) section: ShareSection,
    pub(super) vfs: Arc<dyn Vfs>,
    /// The folders of users, for a share with `{user}` in its path.
    users: Option<UserFolders>,
    identities: Identities,
    /// Another thread looks at its folder.
    pub(super) is_looked_at: Arc<AtomicBool>,
}

/// The state that a reload replaces.
pub(super) struct Loaded {
    pub(super) plan: Plan,
    pub(super) logon: Logon,
    pub(super) shares: Vec<OpenShare>,
    /// Shares of the configuration that are not served.
    pub(super) not_served: Vec<UnservedShare>,
    /// The namespaces of DFS, whose links the plan has no more.
    pub(super) namespaces: Vec<Arc<Namespace>>,
    pub(super) settings: Settings,
    pub(super) kerberos: Option<Keys>,
    /// The directory of `[ldap]`, which a reload keeps.
    pub(super) directory: Option<Arc<AccountDirectory>>,
}

impl OpenShare {
    /// Its folder, and those of the users that are connected.
    pub(super) fn folders(&self) -> Vec<Arc<dyn Vfs>> {
        let users = self.users.as_ref().map_or_else(Vec::new, UserFolders::in_use);
        std::iter::once(Arc::clone(&self.vfs)).chain(users).collect()
    }
}

impl Loaded {
    /// `guards` keep other servers from the folders of shares; none for a trial.
    pub(super) fn new(
        mut plan: Plan,
        arguments: &Serve,
        guid: Guid,
        before: Option<(Logon, &[OpenShare])>,
        guards: Option<&ShareGuards>,
    ) -> Result<Self, Failure> {
        let (logon, shares) = match before {
            Some((logon, shares)) => (Some(logon), shares),
            None => (None, &[][..]),
        };
        let OpenedShares { shares, not_served } = open_shares(&plan, shares, guards)?;
        refuse_exposed(&plan)?;
        let logon = Logon::new(&plan, arguments, logon)?;
        let kerberos = keytab::read(&plan.config)?;
        let settings = settings(&plan, arguments, guid, &logon);
        let namespaces = configured::namespaces(&mut plan.config);
        let directory = None;
        Ok(Self { plan, logon, shares, not_served, namespaces, settings, kerberos, directory })
    }

    /// The state of a server that is ready, for the service manager.
    pub(super) fn state(&self) -> &'static str {
        match self.shares.is_empty() && self.plan.config.namespaces.is_empty() {
            true => "accepting connections, but no share is served",
            false => "accepting connections",
        }
    }

    /// Fails if a share of the cluster that was served is not served any more: the cluster would go on with
    /// it, and this server could not stop it.
    pub(super) fn keeps_moving(&self, before: &Self) -> Result<(), String> {
        let is_lost = |share: &&OpenShare| {
            let name = share.section.name.get_ref();
            let is_here = |open: &OpenShare| open.section.name.get_ref().is_same(name);
            share.section.cluster && !self.shares.iter().any(is_here)
        };
        match before.shares.iter().find(is_lost) {
            Some(lost) => Err(format!(
                "the share {} of the cluster could not be opened, as the line above says; it is served \
                 on as before",
                lost.section.name.get_ref()
            )),
            None => Ok(()),
        }
    }

    /// Reads the accounts again. A fault leaves the old ones.
    pub(super) fn read_accounts(&mut self, arguments: &Serve, guid: Guid) -> Done {
        refuse_exposed(&self.plan)?;
        self.logon = Logon::new(&self.plan, arguments, Some(self.logon.clone()))?;
        self.settings = settings(&self.plan, arguments, guid, &self.logon);
        Ok(())
    }

    pub(super) fn accounts(&self) -> SharedAccounts {
        let config = &self.plan.config;
        let configured = config.users.iter().map(|user| user.name.get_ref().as_str().to_owned());
        let run_user = self.logon.run_user.as_ref().map(|user| user.name.clone());
        let live = LiveAccounts::new(
            self.logon.accounts.clone(),
            self.plan.has_state.then(|| state::users_file_of(config)),
            configured.chain(run_user).collect(),
            accounts::realm(Some(config)),
            PasswordRules::of(Some(config)),
        );
        let user_map = self.logon.user_map.clone();
        let Some(directory) = &self.directory else { return Arc::new(Mapped::new(live, user_map)) };
        let both = DirectoryAccounts::new(live, Arc::clone(directory), self.settings.sid());
        Arc::new(Mapped::new(both, user_map))
    }

    /// The journal of a share with a brake, by which the changes of a session can be undone.
    fn brake_journal(&self, section: &ShareSection) -> Option<PathBuf> {
        let has_one = self.plan.has_state && section.brake.is_some();
        has_one.then(|| state::brake_journal_of(&self.plan.config, section.name.get_ref().as_str()))
    }

    pub(super) fn shares(&self, audit: Option<&Audit>) -> Vec<Share> {
        let open = |share: &OpenShare| {
            let audit = audit.map(|audit| ShareAudit {
                audit: audit.clone(),
                operations: configured::audited(&share.section),
            });
            let vfs = Arc::clone(&share.vfs);
            let id_map = Arc::clone(&self.settings.id_map);
            let user_folders = share.users.clone();
            configured::share(&share.section, vfs, share.identities.clone())
                .moving_addresses(self.plan.config.moves_addresses(&share.section))
                .audit(audit)
                .brake_journal(self.brake_journal(&share.section))
                .id_map(id_map)
                .user_folders(user_folders)
        };
        let shares = self.shares.iter().map(open).collect();
        configured::with_namespaces(shares, &self.plan.config, &self.namespaces)
    }
}

/// Refuses secrets that a share shows, and files that others can change.
fn refuse_exposed(plan: &Plan) -> Done {
    let mut exposed = config_checks::secrets_in_shares(&plan.config, plan.has_state);
    exposed.extend(config_checks::changeable_by_others(&plan.config, plan.has_state));
    if exposed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Config, exposed.join("\nfrevo: ")))
}

fn settings(plan: &Plan, arguments: &Serve, guid: Guid, logon: &Logon) -> Settings {
    let mut settings = configured::settings(&plan.config, accounts::host_name().as_str(), guid);
    #[cfg(feature = "test-hooks")]
    {
        settings.test_hooks = arguments.test_hooks;
    }
    #[cfg(not(feature = "test-hooks"))]
    let _ = arguments;
    machine_sid::apply(&mut settings, &logon.accounts);
    settings
}

/// The shares of a configuration.
struct OpenedShares {
    shares: Vec<OpenShare>,
    not_served: Vec<UnservedShare>,
}

/// Opens the folders of all shares. The folder of an unchanged share stays open, so that its files
/// keep their share modes. A share without its folder, such as one on a disk that is not mounted,
/// does not keep the server from its other shares. A server of whose folders other servers have every
/// one does not start.
fn open_shares(
    plan: &Plan,
    before: &[OpenShare],
    guards: Option<&ShareGuards>,
) -> Result<OpenedShares, Failure> {
    let (mut shares, mut taken, mut not_served) = (Vec::new(), Vec::new(), Vec::new());
    for section in &plan.config.shares {
        let same = before.iter().find(|share| folder::is_same(&share.section, section));
        let name = section.name.get_ref();
        let vfs = match same {
            Some(same) => Ok(Arc::clone(&same.vfs)),
            None => folder::open(section),
        };
        let vfs = match vfs {
            Ok(vfs) => vfs,
            Err(fault) => {
                tracing::error!(target: "frevo::server", share = %name,
                    "the share is not served: {fault}; when that is mended, restart frevo");
                let reason = format!("{fault}; when that is mended, restart frevo");
                not_served.push(UnservedShare { share: name.to_string(), reason });
                continue;
            }
        };
        if let Some(Err(why)) = guards.map(|guards| guards.take(section, &*vfs)) {
            taken.push((name, why));
            continue;
        }
        let identities = identities(section)
            .map_err(|why| Failure::new(Exit::Config, format!("share {name}: {why}")))?;
        let is_looked_at = same.map_or_else(Arc::default, |same| Arc::clone(&same.is_looked_at));
        let users = same.map_or_else(|| folder::of_users(section), |same| same.users.clone());
        shares.push(OpenShare { section: section.clone(), vfs, users, identities, is_looked_at });
    }
    if before.is_empty()
        && taken.len() == plan.config.shares.len()
        && let Some((_, why)) = taken.first()
    {
        return Err(Failure::new(Exit::Failed, format!("no share is served: {why}")));
    }
    for (share, why) in taken {
        tracing::error!(target: "frevo::server", %share,
            "the share is not served: {why}; then reload frevo");
        let reason = format!("{why}; then reload frevo");
        not_served.push(UnservedShare { share: share.to_string(), reason });
    }
    Ok(OpenedShares { shares, not_served })
}

pub(super) fn warn(loaded: &Loaded) {
    for warning in config_checks::warnings(&loaded.plan.config) {
        tracing::warn!(target: "frevo::server", "{warning}");
    }
    let joined = administrators::joined(&loaded.plan.config, loaded.kerberos.as_ref());
    // A member of a domain finds SIDs of the domain in access lists.
    let is_member = !joined.is_empty() || !loaded.plan.config.idmaps.is_empty();
    for share in loaded.shares.iter().filter(|_| !is_member) {
        let name = share.section.name.get_ref().as_str();
        if let Some(warning) = machine_sid::foreign_lists(name, &*share.vfs, loaded.settings.sid())
        {
            tracing::warn!(target: "frevo::server", "{warning}");
        }
    }
    let known: Vec<String> =
        loaded.logon.accounts.entries().map(|entry| fold_name(&entry.name)).collect();
    for warning in config_checks::unknown_users(&loaded.plan.config, &known) {
        tracing::warn!(target: "frevo::server", "{warning}");
    }
    if let Some(keys) = &loaded.kerberos {
        tracing::info!(target: "frevo::server", "Kerberos: tickets for {keys} are accepted");
        if let Some(warning) = keys.other_name(&loaded.settings.server_name) {
            tracing::warn!(target: "frevo::server", "{warning}");
        }
    }
    let sentence = administrators::sentence(&loaded.plan.config, &loaded.logon.accounts, &joined);
    tracing::info!(target: "frevo::server", "{sentence}");
    let asks_others = loaded.kerberos.is_some() || loaded.plan.config.ldap.is_on();
    if loaded.logon.names().is_empty() && !asks_others {
        tracing::warn!(target: "frevo::server", "no user can log on; run frevo user add NAME");
    }
    if loaded.plan.config.shares.is_empty() && loaded.plan.config.namespaces.is_empty() {
        tracing::warn!(target: "frevo::server", "there are no shares; add a [[share]], then reload");
    } else if loaded.shares.is_empty() && !loaded.plan.config.shares.is_empty() {
        tracing::warn!(target: "frevo::server",
            "no share is served; the lines above say why, for each share");
    }
}
