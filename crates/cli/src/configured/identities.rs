//! The users of the host as which the files of a share are used.

use std::sync::Arc;

use frevo_config::{RunAsChoice, ShareSection};
use frevo_posix::credentials::{self, Credentials};
use frevo_server::share::{GuestAccess, RunAs};

/// The user of the host as which the files of a share are used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identities {
    pub(super) run_as: RunAs,
    pub(super) force_group: Option<u32>,
    pub(super) guest: Option<GuestAccess>,
}

/// Returns the users of a share's keys.
///
/// # Errors
/// Why files cannot be used as them here, for people.
pub(crate) fn identities(section: &ShareSection) -> Result<Identities, String> {
    let of_accounts = of_accounts(section)?;
    let Some(name) = &section.guest else { return Ok(of_accounts) };
    let run_as = of_guests(name.get_ref())?;
    let guest = Some(GuestAccess { run_as, writes: section.guest_write });
    Ok(Identities { guest, ..of_accounts })
}

/// Returns the user of the host as which guests use files. A server that is not root acts as nobody else
/// than its own user.
fn of_guests(name: &str) -> Result<RunAs, String> {
    let user = frevo_posix::user(name)
        .map_err(|errno| format!("guest: cannot look up the user {name}: {errno}"))?
        .ok_or_else(|| format!("guest: this host has no user {name}"))?;
    let one = Credentials::new(user.uid, user.gid, &user.groups).ok_or("guest must not be root")?;
    if user.uid == rustix::process::geteuid().as_raw() {
        return Ok(RunAs::Server);
    }
    credentials::check().map_err(|why| {
        format!(
            "guest = \"{name}\" is not possible here: {why}; start frevo as root, or write the user that \
             it runs as"
        )
    })?;
    Ok(RunAs::One(Arc::new(one)))
}

fn of_accounts(section: &ShareSection) -> Result<Identities, String> {
    let is_user = section.run_as == Some(RunAsChoice::User);
    if !is_user && section.force_user.is_none() {
        return Ok(Identities::default());
    }
    let key = if is_user { "run_as = \"user\"" } else { "force_user" };
    credentials::check().map_err(|why| {
        format!("{key} is not possible here: {why}; start frevo as root, or remove the key")
    })?;
    let group = match &section.force_group {
        Some(name) => {
            let name = name.get_ref();
            let group = frevo_posix::group_id(name).map_err(|errno| {
                format!("force_group: cannot look up the group {name}: {errno}")
            })?;
            Some(group.ok_or_else(|| format!("force_group: this host has no group {name}"))?)
        }
        None => None,
    };
    let run_as = match &section.force_user {
        None => RunAs::User,
        Some(name) => {
            let name = name.get_ref();
            let user = frevo_posix::user(name)
                .map_err(|errno| format!("force_user: cannot look up the user {name}: {errno}"))?
                .ok_or_else(|| format!("force_user: this host has no user {name}"))?;
            let gid = group.unwrap_or(user.gid);
            let one = Credentials::new(user.uid, gid, &user.groups);
            RunAs::One(Arc::new(one.ok_or("force_user must not be root")?))
        }
    };
    Ok(Identities { run_as, force_group: group, guest: None })
}
