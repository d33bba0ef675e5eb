//! The older dialect that the server of a cluster names when it refuses a share: MS-SMB2 3.2.5.5,
//! STATUS_SMB_BAD_CLUSTER_DIALECT.
//!
//! Nobody who sits on the way can name a dialect: the answer counts only if it is proved by the session's
//! keys. Nor does a dialect that is named take away from what the user demands: docs/threats.md.

use frevo_proto::Dialect;
use frevo_wire::error_response::{ErrorId, ErrorResponse};

use crate::error::Cause;
use crate::options::Options;
use crate::types::{self, SigningAlgorithm};

/// The facts of the session in which the share was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    /// Connection.Dialect.
    pub(super) dialect: Dialect,
    /// True if the session has keys, which have proved the answer.
    pub(super) is_proved: bool,
    /// True if all messages of the session are encrypted.
    pub(super) is_sealed: bool,
}

/// Returns the dialect with which the share can be used, which the body of a refusal names.
pub(super) fn named(message: &[u8], refused: Refused, options: &Options) -> Result<Dialect, Cause> {
    if !refused.is_proved {
        return Err(Cause::Security(
            "the cluster asks for an older dialect in an answer that is neither signed nor encrypted, \
             which anybody on the network could have sent; log on as a user, not as a guest",
        ));
    }
    let dialect = maximum(message)?;
    let known = types::Dialect::ALL.into_iter().find(|known| known.wire() == dialect);
    let Some(known) = known else {
        return Err(Cause::Protocol(
            "it refuses the dialect of a cluster and names an unknown one",
        ));
    };
    if dialect.0 >= refused.dialect.0 {
        return Err(Cause::Protocol(
            "it refuses the dialect of a cluster and names one that is not older",
        ));
    }
    if known < options.oldest {
        return Err(Cause::ClusterDialect(known));
    }
    if refused.is_sealed && known < types::Dialect::Smb300 {
        return Err(Cause::Security(
            "the cluster asks for a dialect that cannot encrypt, and this session is encrypted",
        ));
    }
    // In 3.1.1 the algorithm is one of those that are offered; older dialects have one each.
    let signs_by = match known >= types::Dialect::Smb300 {
        true => SigningAlgorithm::AesCmac,
        false => SigningAlgorithm::HmacSha256,
    };
    if !options.signing.contains(&signs_by) {
        return Err(Cause::Security(
            "the cluster asks for a dialect whose signing algorithm is none of those that are allowed",
        ));
    }
    Ok(dialect)
}

/// Reads MaxClusterDialect: two bytes, in an error context as 3.1.1 has them or without one (MS-SMB2
/// 3.3.5.7).
fn maximum(message: &[u8]) -> Result<Dialect, Cause> {
    let response = ErrorResponse::parse(message)?;
    let data = match &response {
        ErrorResponse::Contexts(contexts) if contexts.len() != 1 => None,
        response => response.data(ErrorId::DEFAULT),
    };
    let bytes = data.and_then(|data| <[u8; 2]>::try_from(data).ok());
    bytes.map(|bytes| Dialect(u16::from_le_bytes(bytes))).ok_or(Cause::Protocol(
        "it refuses the dialect of a cluster and does not name the one that it accepts",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::header::HEADER_LEN;

    /// The refusal of a 3.1.1 client: ErrorContextCount 1, ByteCount 10, ErrorDataLength 2, ErrorId 0.
    const IN_CONTEXT: &[u8] = &[9, 0, 1, 0, 10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x03];
    /// The refusal of an older client: ErrorContextCount 0, ByteCount 2.
    const BARE: &[u8] = &[9, 0, 0, 0, 2, 0, 0, 0, 0x02, 0x03];

    const REFUSED: Refused =
        Refused { dialect: Dialect::SMB_3_1_1, is_proved: true, is_sealed: false };

    fn message(body: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER_LEN];
        message.extend_from_slice(body);
        message
    }

    fn with(dialect: u16) -> Vec<u8> {
        let mut body = IN_CONTEXT.to_vec();
        body[16..].copy_from_slice(&dialect.to_le_bytes());
        message(&body)
    }

    #[test]
    fn both_forms_name_the_dialect() {
        let options = Options::new();
        for body in [IN_CONTEXT, BARE] {
            let named = named(&message(body), REFUSED, &options);
            assert_eq!(named.unwrap(), Dialect::SMB_3_0_2, "{body:?}");
        }
    }

    #[test]
    fn other_bytes_name_none() {
        let changed = |body: &[u8], at: usize, value| {
            let mut body = body.to_vec();
            body[at] = value;
            message(&body)
        };
        let mut long = IN_CONTEXT.to_vec();
        long.push(0);
        long[4] = 11;
        long[8] = 3;
        let mut two = IN_CONTEXT[..16].to_vec();
        two[2] = 2;
        two[4] = 26;
        two.extend([2, 3, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x03]);
        let wrong = [
            message(&[9, 0, 0, 0, 0, 0, 0, 0, 0]),
            message(&IN_CONTEXT[..17]),
            message(&long),
            message(&two),
            changed(IN_CONTEXT, 0, 8),
            changed(IN_CONTEXT, 2, 0),
            changed(IN_CONTEXT, 4, 200),
            changed(IN_CONTEXT, 8, 1),
            changed(IN_CONTEXT, 12, 1),
            changed(BARE, 4, 1),
            message(&BARE[..9]),
        ];
        for message in wrong {
            let error = named(&message, REFUSED, &Options::new()).unwrap_err();
            assert!(matches!(error, Cause::Protocol(_)), "{error} {message:?}");
        }
    }

    #[test]
    fn a_dialect_that_is_unknown_or_not_older_is_an_error() {
        for dialect in [0x0311, 0x0312, 0x0400, 0x02FF, 0x0301, 0, 0xFFFF] {
            let error =
                named(&with(dialect), REFUSED, &Options::new().oldest(types::Dialect::Smb202));
            assert!(matches!(error.unwrap_err(), Cause::Protocol(_)), "{dialect:#06x}");
        }
        let at_3_0_2 = Refused { dialect: Dialect::SMB_3_0_2, ..REFUSED };
        assert!(named(&with(0x0302), at_3_0_2, &Options::new()).is_err());
        assert_eq!(named(&with(0x0300), at_3_0_2, &Options::new()).unwrap(), Dialect::SMB_3_0);
    }

    #[test]
    fn demands_of_the_user_are_kept() {
        let kind =
            |dialect, refused, options: &Options| match named(&with(dialect), refused, options) {
                Ok(_) => "followed",
                Err(Cause::ClusterDialect(_)) => "too old",
                Err(Cause::Security(_)) => "not safe",
                Err(_) => "other",
            };
        let (usual, old) = (Options::new(), Options::new().oldest(types::Dialect::Smb202));
        assert_eq!(kind(0x0302, REFUSED, &usual), "followed");
        assert_eq!(kind(0x0210, REFUSED, &usual), "too old");
        assert_eq!(kind(0x0210, REFUSED, &old), "followed");
        let newest = Options::new().oldest(types::Dialect::Smb311);
        assert_eq!(kind(0x0302, REFUSED, &newest), "too old");
        let sealed = Refused { is_sealed: true, ..REFUSED };
        assert_eq!(kind(0x0302, sealed, &usual), "followed");
        assert_eq!(kind(0x0210, sealed, &old), "not safe");
        let guest = Refused { is_proved: false, ..REFUSED };
        assert_eq!(kind(0x0302, guest, &usual), "not safe");
        let gmac = Options::new().signing(vec![SigningAlgorithm::AesGmac]);
        assert_eq!(kind(0x0302, REFUSED, &gmac), "not safe");
    }
}
