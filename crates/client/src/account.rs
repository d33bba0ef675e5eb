//! Sentences for the statuses with which servers refuse a logon (MS-ERREF 2.3.1), each with
//! a remedy.

use crate::Status;

/// The reason why `user` was not logged on; `None` if the status is about something else.
pub(crate) fn sentence(status: Status, user: Option<&str>) -> Option<String> {
    let user = user.filter(|user| !user.is_empty()).unwrap_or("that user");
    Some(match status {
        Status::LOGON_FAILURE | Status::WRONG_PASSWORD => format!(
            "the server does not accept the user name or password of {user}; check both, and \
             the domain if there is one (DOMAIN\\USER)"
        ),
        Status::NO_SUCH_USER => {
            format!("the server knows no user {user}; check the name and the domain")
        }
        Status::ACCOUNT_LOCKED_OUT => format!(
            "the account of {user} is locked after too many wrong passwords; wait, or ask \
             the administrator to unlock it"
        ),
        Status::PASSWORD_EXPIRED => {
            format!("the password of {user} has expired; set a new one first")
        }
        Status::PASSWORD_MUST_CHANGE => {
            format!("{user} must set a new password before the first logon")
        }
        Status::ACCOUNT_DISABLED => {
            format!("the account of {user} is disabled; ask the administrator to enable it")
        }
        Status::ACCOUNT_EXPIRED => {
            format!("the account of {user} has expired; ask the administrator to extend it")
        }
        Status::ACCOUNT_RESTRICTION => format!(
            "a rule for the account of {user} forbids this logon; often an empty password is \
             the reason, or an account that may use only Kerberos"
        ),
        Status::INVALID_LOGON_HOURS => format!("{user} may not log on at this time of day"),
        Status::INVALID_WORKSTATION => format!("{user} may not log on from this machine"),
        Status::LOGON_TYPE_NOT_GRANTED | Status::LOGON_NOT_GRANTED => format!(
            "{user} may not log on to the server over the network; ask the administrator for \
             that right"
        ),
        Status::NO_LOGON_SERVERS | Status::NETLOGON_NOT_STARTED => format!(
            "the server cannot reach a domain controller to check the password of {user}; try \
             again later"
        ),
        Status::NO_SUCH_DOMAIN => format!("the server does not know the domain of {user}"),
        _ => return None,
    })
}

/// Returns true if the status is about the user, and stays until someone changes the account.
pub(crate) fn is_of_logon(status: Status) -> bool {
    !is_passing(status) && sentence(status, None).is_some()
}

/// Returns true if the reason may pass by itself, as after a start of the server or of its
/// domain.
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
