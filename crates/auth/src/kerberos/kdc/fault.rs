//! Reasons for which a KDC gives no ticket.

use super::super::{EncryptionType, Principal};
use crate::kerberos::message::ErrorCode;
use crate::limits::MAX_KDC_REFERRALS;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// The reason for which there is no ticket. Its text is one line that tells what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KdcFault {
    /// A message of the KDC is malformed.
    Malformed(&'static str),
    /// The KDC does not know the user.
    UnknownClient(Box<Principal>),
    /// The KDC does not know the service.
    UnknownService {
        /// The service that was asked for.
        server: Box<Principal>,
        /// The realm whose KDC was asked.
        realm: String,
    },
    /// The password, or the key of the keytab, is wrong.
    WrongSecret(Box<Principal>),
    /// The password must be changed first.
    PasswordExpired(Box<Principal>),
    /// The account is disabled or locked.
    Revoked(Box<Principal>),
    /// The keytab has no key of the client that the KDC accepts.
    NoKey(Box<Principal>),
    /// The KDC wants another proof than a password: a card or a one-time password.
    Preauthentication(Box<Principal>),
    /// The ticket-granting ticket of this client has expired.
    TicketExpired(Box<Principal>),
    /// The clocks of this machine and of the KDC differ by this number of seconds; a positive one
    /// means that this machine's is ahead.
    Skew {
        /// The realm of the KDC.
        realm: String,
        /// The difference in seconds.
        seconds: i64,
    },
    /// The KDC has no encryption type in common with the configuration.
    EncryptionTypes {
        /// The realm of the KDC.
        realm: String,
    },
    /// The session key has an encryption type that the configuration does not allow.
    SessionKey {
        /// The service of the ticket.
        server: Box<Principal>,
        /// The assigned number of the encryption type.
        number: i32,
    },
    /// A reply that is not proved to come from the KDC, or that belongs to another request.
    NotAuthentic {
        /// The realm that was asked.
        realm: String,
    },
    /// KDCs refer to further realms without an end.
    TooManyReferrals(Box<Principal>),
    /// The realm of the service is not trusted by the user's.
    NoTrust {
        /// The realm that was asked.
        realm: String,
        /// The realm of the service.
        target: String,
    },
    /// The KDC refused the request with another code.
    Refused {
        /// The realm of the KDC.
        realm: String,
        /// error-code of KRB-ERROR.
        code: i32,
    },
    /// The exchange is over.
    OutOfTurn,
}

impl fmt::Display for KdcFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "the KDC's reply is malformed: {what}"),
            Self::UnknownClient(client) => write!(
                f,
                "the KDC knows no user {client}; check the name and the realm (klist, default_realm \
                 in krb5.conf)"
            ),
            Self::UnknownService { server, realm } => write!(
                f,
                "the KDC of {} knows no service {server}; use the server's full DNS name, or let an \
                 administrator register the name",
                realm.escape_debug()
            ),
            Self::WrongSecret(client) => {
                write!(f, "the KDC does not accept the password or keytab of {client}; check it")
            }
            Self::PasswordExpired(client) => {
                write!(f, "the password of {client} has expired; set a new one with kpasswd")
            }
            Self::Revoked(client) => write!(
                f,
                "the account of {client} is disabled or locked; ask the administrator of the realm"
            ),
            Self::NoKey(client) => write!(
                f,
                "the keytab has no key of {client} that the KDC accepts; export it again, or name \
                 another user (klist -ke shows the keys)"
            ),
            Self::Preauthentication(client) => write!(
                f,
                "the KDC wants more than a password of {client}, such as a card; run kinit and use \
                 its ticket"
            ),
            Self::TicketExpired(client) => {
                write!(f, "the Kerberos ticket of {client} has expired; run kinit")
            }
            Self::Skew { realm, seconds } => {
                let side = if *seconds > 0 { "ahead of" } else { "behind" };
                write!(
                    f,
                    "this machine's clock is {} seconds {side} that of the KDC of {}; set it by NTP",
                    seconds.unsigned_abs(),
                    realm.escape_debug()
                )
            }
            _ => self.fmt_rest(f),
        }
    }
}

impl KdcFault {
    fn fmt_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EncryptionTypes { realm } => write!(
                f,
                "the KDC of {} has no encryption type that is allowed here; give the account AES \
                 keys by a new password, or name the type in permitted_enctypes of krb5.conf",
                realm.escape_debug()
            ),
            Self::SessionKey { server, number } => {
                write!(f, "the ticket for {server} uses the encryption type ")?;
                match EncryptionType::from_number(*number) {
                    Some(etype) => write!(f, "{etype}")?,
                    None => write!(f, "{number}")?,
                }
                f.write_str(
                    ", which is not allowed here; let the service have AES keys, or name the type \
                     in permitted_enctypes of krb5.conf",
                )
            }
            Self::NotAuthentic { realm } => write!(
                f,
                "a reply does not come from the KDC of {}; check who answers under its address",
                realm.escape_debug()
            ),
            Self::TooManyReferrals(server) => write!(
                f,
                "the KDCs refer in a circle or over more than {MAX_KDC_REFERRALS} realms for \
                 {server}; name the server's realm in [domain_realm] of krb5.conf"
            ),
            Self::NoTrust { realm, target } => write!(
                f,
                "the KDC of {} has no trust with the realm {}; check [domain_realm] in krb5.conf",
                realm.escape_debug(),
                target.escape_debug()
            ),
            Self::Refused { realm, code } => {
                write!(f, "the KDC of {} refused the request: ", realm.escape_debug())?;
                match ErrorCode(*code).name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "error {code}"),
                }
            }
            _ => f.write_str("the exchange with the KDC is over"),
        }
    }
}

impl core::error::Error for KdcFault {}

impl From<frevo_wire::Malformed> for KdcFault {
    fn from(fault: frevo_wire::Malformed) -> Self {
        Self::Malformed(fault.what)
    }
}
