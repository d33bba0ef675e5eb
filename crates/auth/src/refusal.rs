//! Reasons for refused logons, and the status for the peer.

use crate::kerberos::{Fault, SealedTicket};
use alloc::string::String;
use core::fmt;
use frevo_wire::{Malformed, Status};

/// A refusal: the reason for the log, and the names for the throttle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for the log.
    pub reason: Reason,
    /// The user that the peer claimed to be, in its spelling; empty if the exchange did not come so
    /// far.
    pub user: String,
    /// The domain that the client claims.
    pub domain: String,
    /// The account of the claimed name, in the account's spelling; the claimed name if there is no
    /// such account. Failures are counted by it: it is empty where no password could have changed the
    /// refusal.
    pub account: String,
}

impl Refusal {
    /// Makes a refusal from before any name was read.
    pub const fn new(reason: Reason) -> Self {
        Self { reason, user: String::new(), domain: String::new(), account: String::new() }
    }

    /// True if the token was malformed, false for a well-formed one that was refused.
    pub const fn is_malformed(&self) -> bool {
        matches!(
            self.reason,
            Reason::Malformed(_) | Reason::OutOfTurn | Reason::Kerberos(Fault::Malformed(_))
        )
    }

    /// True for a ticket that no key of the server opens: newer keys may.
    pub const fn needs_other_keys(&self) -> bool {
        use Fault::{NoKey, NoKeyVersion, WrongKey};
        let Reason::Kerberos(fault) = &self.reason else { return false };
        matches!(fault, NoKey(_) | NoKeyVersion { .. } | WrongKey(_))
    }

    /// Returns the ticket that the server cannot use. None for other refusals.
    pub const fn ticket(&self) -> Option<&SealedTicket> {
        let Reason::Kerberos(fault) = &self.reason else { return None };
        fault.ticket()
    }

    /// True for a ticket of a newer key than all that the server has: after a new password of its
    /// account the keytab follows.
    pub const fn needs_newer_keys(&self) -> bool {
        matches!(
            self.reason,
            Reason::Kerberos(Fault::NoKeyVersion { kvno, newest, .. }) if kvno > newest
        )
    }

    /// Returns the status for the client. It does not tell which part of the proof was wrong, nor
    /// whether the account exists: a rule for an account has a status of its own only because the
    /// client has proved the password.
    pub const fn status(&self) -> Status {
        match self.reason {
            Reason::Malformed(_) | Reason::OutOfTurn | Reason::Kerberos(Fault::Malformed(_)) => {
                Status::INVALID_PARAMETER
            }
            Reason::Anonymous => Status::ACCESS_DENIED,
            // MS-NLMP 3.2.5.1.2: a domain controller that blocks NTLM returns this status, which
            // Windows and impacket show to the user.
            Reason::NtlmOff => Status::NOT_SUPPORTED,
            // MS-NLMP 3.2.5.1.2: the status of the controller, or that there is none.
            Reason::DomainAccount(fault) | Reason::Rule(fault) => fault.status(),
            Reason::DomainSilent(_) | Reason::DirectorySilent(_) => Status::NO_LOGON_SERVERS,
            _ => Status::LOGON_FAILURE,
        }
    }
}

/// The rule for which an account may not log on, though its password is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountFault {
    /// The account is disabled.
    Disabled,
    /// The account has expired.
    Expired,
    /// The password has expired.
    PasswordExpired,
    /// The password must be changed before the first logon.
    MustChange,
    /// The account is locked after wrong passwords.
    LockedOut,
    /// The account may log on at other hours only.
    Hours,
    /// The account may log on from other workstations only.
    Workstation,
    /// Another rule of a domain for the account.
    Restriction,
}

impl AccountFault {
    /// Returns the status for the client, MS-ERREF 2.3.1.
    pub const fn status(self) -> Status {
        match self {
            Self::Disabled => Status::ACCOUNT_DISABLED,
            Self::Expired => Status::ACCOUNT_EXPIRED,
            Self::PasswordExpired => Status::PASSWORD_EXPIRED,
            Self::MustChange => Status::PASSWORD_MUST_CHANGE,
            Self::LockedOut => Status::ACCOUNT_LOCKED_OUT,
            Self::Hours => Status::INVALID_LOGON_HOURS,
            Self::Workstation => Status::INVALID_WORKSTATION,
            Self::Restriction => Status::ACCOUNT_RESTRICTION,
        }
    }
}

impl AccountFault {
    /// Returns the rule of an account of this server in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Disabled => "the account is disabled",
            Self::Expired => "the account has expired",
            Self::PasswordExpired => "the password is too old; the user must change it",
            Self::MustChange => "the user must change the password before the next logon",
            Self::LockedOut => "the account is locked",
            Self::Hours => "the account may not log on at this time",
            Self::Workstation => "the account may not log on from this computer",
            Self::Restriction => "a rule for the account forbids the logon",
        }
    }
}

/// Writes the rule of a domain in words.
impl fmt::Display for AccountFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "the account is disabled in the domain",
            Self::Expired => "the account has expired in the domain",
            Self::PasswordExpired => "the password has expired; the user must change it",
            Self::MustChange => "the user must change the password before the first logon",
            Self::LockedOut => "the domain has locked the account after wrong passwords",
            Self::Hours => "the domain does not let the user log on at this time",
            Self::Workstation => "the domain does not let the user log on from this computer",
            Self::Restriction => "a rule of the domain for the account forbids the logon",
        })
    }
}

/// The reason of a refused logon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The token is malformed.
    Malformed(&'static str),
    /// A well-formed token at the wrong time, for example after the end.
    OutOfTurn,
    /// SPNEGO: the peer offers no mechanism that this end accepts.
    NoCommonMechanism,
    /// The client offers NTLM only, and this end does not accept it.
    NtlmOff,
    /// The peer rejected the logon.
    Rejected,
    /// The peer does not support a feature that this end requires.
    TooWeak(&'static str),
    /// The client asks to be anonymous.
    Anonymous,
    /// The client answered with NTLMv1 or LM.
    NtlmV1,
    /// The client named a user but sent no proof of a password.
    NoResponse,
    /// The account does not exist.
    UnknownUser,
    /// The response does not prove the password, or is for another challenge.
    WrongPassword,
    /// The password is right, but a rule for the account forbids the logon.
    Rule(AccountFault),
    /// The client sends no MIC and the configuration requires one.
    MissingMic,
    /// The MIC does not match the three messages.
    WrongMic,
    /// SPNEGO: the chosen mechanism is not the first of the list, and mechListMIC is missing.
    MissingMechListMic,
    /// SPNEGO: mechListMIC does not match the list.
    WrongMechListMic,
    /// The client wanted to log on to this other server.
    WrongTarget(String),
    /// The client does not name its server and the configuration requires it.
    MissingTarget,
    /// The channel bindings are not those of this connection.
    WrongChannelBindings,
    /// A KDC has authenticated the user, but the server has no account for it. The text says why.
    NoAccount(String),
    /// A domain controller has refused a user of NTLM. The text has its words.
    DomainRefused(String),
    /// A domain controller does not let the account log on.
    DomainAccount(AccountFault),
    /// No domain controller has judged a user of NTLM. The text says why.
    DomainSilent(String),
    /// The directory of accounts has not told whether there is such an account. The text says why.
    DirectorySilent(String),
    /// A reason of Kerberos.
    Kerberos(Fault),
}

impl Reason {
    /// True if another password, or another name, could have changed the refusal. False for refusals
    /// of the form of a message, which are decided before a secret is used, and where nobody has
    /// checked the password.
    pub(crate) const fn is_of_proof(&self) -> bool {
        match self {
            Self::UnknownUser
            | Self::WrongPassword
            | Self::Rule(_)
            | Self::WrongMic
            | Self::MissingMechListMic
            | Self::WrongMechListMic
            | Self::DomainAccount(_)
            | Self::DomainRefused(_) => true,
            Self::Malformed(_)
            | Self::OutOfTurn
            | Self::NoCommonMechanism
            | Self::NtlmOff
            | Self::Rejected
            | Self::TooWeak(_)
            | Self::Anonymous
            | Self::NtlmV1
            | Self::NoResponse
            | Self::MissingMic
            | Self::WrongTarget(_)
            | Self::MissingTarget
            | Self::WrongChannelBindings
            | Self::NoAccount(_)
            | Self::DomainSilent(_)
            | Self::DirectorySilent(_)
            | Self::Kerberos(_) => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "the security token is malformed: {what}"),
            Self::OutOfTurn => f.write_str("the security token does not belong at this point"),
            Self::NoCommonMechanism => f.write_str(
                "the peer offers none of the ways to log on (Kerberos, NTLM) that are allowed here",
            ),
            Self::NtlmOff => f.write_str(
                "the client used NTLM, which is off here (ntlm = false in [server]); let it use \
                 Kerberos: connect by the server's name, not its address, and with a ticket (klist)",
            ),
            Self::Rejected => f.write_str("the peer rejected the logon"),
            Self::TooWeak(what) => write!(f, "the peer's NTLM is too weak: {what}"),
            Self::Anonymous => f.write_str("anonymous logons are not allowed"),
            Self::NtlmV1 => f.write_str("the client used NTLMv1 or LM, which are not supported"),
            Self::NoResponse => f.write_str("the client named a user but sent no proof"),
            Self::UnknownUser => f.write_str("there is no such user"),
            Self::WrongPassword => f.write_str("the password is wrong"),
            Self::Rule(fault) => f.write_str(fault.words()),
            Self::MissingMic => f.write_str("the client sent no message integrity code"),
            Self::WrongMic => f.write_str("the message integrity code is wrong"),
            Self::MissingMechListMic => f.write_str("the list of mechanisms is not signed"),
            Self::WrongMechListMic => {
                f.write_str("the signature of the list of mechanisms is wrong")
            }
            Self::WrongTarget(name) => write!(f, "the client meant another server: {name:?}"),
            Self::MissingTarget => f.write_str("the client does not say which server it means"),
            Self::WrongChannelBindings => {
                f.write_str("the channel bindings are not those of this connection")
            }
            Self::NoAccount(why) => f.write_str(why),
            Self::DomainAccount(fault) => fault.fmt(f),
            Self::DomainRefused(why) => write!(f, "the domain refuses the user: {why}"),
            Self::DirectorySilent(why) => {
                write!(f, "the directory of accounts was not asked: {why}")
            }
            Self::DomainSilent(why) => write!(f, "the domain was not asked: {why}"),
            Self::Kerberos(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl core::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(fault: Malformed) -> Self {
        Self::new(Reason::Malformed(fault.what))
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::new(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_cannot_tell_reasons_apart() {
        for reason in [Reason::UnknownUser, Reason::WrongPassword, Reason::WrongMic] {
            assert_eq!(Refusal::new(reason).status(), Status::LOGON_FAILURE);
        }
        let expired = Refusal::new(Reason::Rule(AccountFault::Expired));
        assert_eq!(expired.status(), Status::ACCOUNT_EXPIRED);
        assert_eq!(Refusal::new(Reason::NtlmOff).status(), Status::NOT_SUPPORTED);
        assert_eq!(Refusal::new(Reason::Anonymous).status(), Status::ACCESS_DENIED);
        let malformed = Refusal::new(Reason::Malformed("x"));
        assert!(malformed.is_malformed());
        assert_eq!(malformed.status(), Status::INVALID_PARAMETER);
    }
}
