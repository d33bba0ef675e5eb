//! What a server says of an account when it refuses a logon: MS-ERREF 2.3.1, each with what
//! to do about it.

use frevo_wire::Status;

/// Why `user` is not let in, if the status is about that.
pub(crate) fn sentence(status: Status, user: Option<&str>) -> Option<String> {
    let user = user.filter(|user| !user.is_empty()).unwrap_or("that user");
    Some(match status {
        Status::LOGON_FAILURE | Status::WRONG_PASSWORD => format!(
            "the server does not accept the user name or password of {user}: check both, and \
             the domain if there is one (DOMAIN\\USER)"
        ),
        Status::NO_SUCH_USER => {
            format!("the server knows no user {user}: check the name and the domain")
        }
        Status::ACCOUNT_LOCKED_OUT => format!(
            "the account of {user} is locked after too many wrong passwords: wait, or have it \
             unlocked by its administrator"
        ),
        Status::PASSWORD_EXPIRED => {
            format!("the password of {user} has expired: set another one, then log on with that")
        }
        Status::PASSWORD_MUST_CHANGE => {
            format!("{user} has to set a password before the first logon")
        }
        Status::ACCOUNT_DISABLED => {
            format!("the account of {user} is disabled: its administrator can enable it")
        }
        Status::ACCOUNT_EXPIRED => {
            format!("the account of {user} has expired: its administrator can extend it")
        }
        Status::ACCOUNT_RESTRICTION => format!(
            "the rules for the account of {user} forbid this logon: an empty password is often \
             the reason, or a password where only Kerberos is allowed"
        ),
        Status::INVALID_LOGON_HOURS => format!("{user} may not log on at this time of day"),
        Status::INVALID_WORKSTATION => format!("{user} may not log on from this machine"),
        Status::LOGON_TYPE_NOT_GRANTED | Status::LOGON_NOT_GRANTED => format!(
            "{user} may not log on to the server over the network: its administrator can grant \
             that right"
        ),
        Status::NO_LOGON_SERVERS | Status::NETLOGON_NOT_STARTED => format!(
            "the server reaches no domain controller to check the password of {user} with: try \
             again later"
        ),
        Status::NO_SUCH_DOMAIN => format!("the server does not know the domain of {user}"),
        _ => return None,
    })
}

/// Whether it is about the user, and stays so until somebody does something.
pub(crate) fn is_of_logon(status: Status) -> bool {
    !is_passing(status) && sentence(status, None).is_some()
}

/// Whether what a server lacks for a logon may be there a moment later, as after a start of
/// it or of its domain.
pub(crate) const fn is_passing(status: Status) -> bool {
    matches!(
        status,
        Status::INSUFFICIENT_RESOURCES
            | Status::USER_SESSION_DELETED
            | Status::NO_LOGON_SERVERS
            | Status::NETLOGON_NOT_STARTED
            | Status::REQUEST_NOT_ACCEPTED
            | Status::SHARING_PAUSED
            | Status::SERVER_UNAVAILABLE
            | Status::SHUTDOWN_IN_PROGRESS
            | Status::SERVER_SHUTDOWN_IN_PROGRESS
            | Status::SYSTEM_SHUTDOWN
    )
}
