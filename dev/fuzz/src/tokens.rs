//! The tokens of SPNEGO and NTLM by themselves: a right password is no help in
//! reaching the branches of their parsers.

use frevo_auth::ntlm::{Authenticate, AvPairs, Challenge, Negotiate, is_ntlm};
use frevo_auth::spnego::{KERBEROS, NTLM, NegTokenInit, NegTokenResp};

/// By the first byte: which token the rest is.
pub fn tokens(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let _ = is_ntlm(data);
    match kind % 6 {
        0 => {
            let Ok(token) = NegTokenInit::parse(data) else { return };
            assert!(
                token.mechanisms.position(NTLM) != token.mechanisms.position(KERBEROS)
                    || token.mechanisms.position(NTLM).is_none()
            );
            let written = token.encode();
            let again = NegTokenInit::parse(&written).expect("what we write we read");
            assert_eq!(again.mechanisms, token.mechanisms);
            assert_eq!((again.token, again.mic), (token.token, token.mic));
        }
        1 => {
            let Ok(token) = NegTokenResp::parse(data) else { return };
            let written = token.encode();
            assert_eq!(NegTokenResp::parse(&written), Ok(token));
        }
        2 => {
            let Ok(message) = Negotiate::parse(data) else { return };
            assert!(Negotiate::parse(&message.encode()).is_ok());
        }
        3 => {
            let Ok(message) = Challenge::parse(data) else { return };
            let written = message.encode();
            let again = Challenge::parse(&written);
            if let Ok(again) = again {
                assert_eq!(again.target_info, message.target_info);
                assert_eq!(again.server_challenge, message.server_challenge);
            }
            pairs(message.target_info);
        }
        4 => {
            let Ok(message) = Authenticate::parse(data) else { return };
            let _ = (message.is_anonymous(), message.mic());
        }
        _ => pairs(data),
    }
}

fn pairs(data: &[u8]) {
    let Ok(pairs) = AvPairs::parse(data) else { return };
    let _ = (pairs.flags(), pairs.timestamp(), pairs.channel_bindings(), pairs.target_name());
    for (id, value) in pairs.iter() {
        assert_eq!(pairs.value(id), Some(value), "each id once");
        let _ = pairs.name(id);
    }
}
