//! Tokens of real clients to this acceptor, with a fixed challenge and clock: smbclient's library
//! (Samba 4.17), which signs everything, and cifs.ko of Linux 6.12, which sends bare NTLM without
//! MIC and target name.

use super::{AcceptorStep, Vec, vec};
use crate::smbpasswd::Entry;
use crate::spnego::NegTokenResp;
use crate::{Acceptor, AcceptorConfig, AccountFile, Done, NtHash, Reason, Refusal};
use alloc::sync::Arc;

/// The acceptor's clock when the tokens were made; the MIC covers it.
const NOW: u64 = 134_100_000_000_000_000;

/// NegTokenInit of Samba.
const SAMBA_NEGOTIATE: &str = "604806062b0601050502a03e303ca00e300c060a2b06010401823702020aa22a04284e544c4d53535000 \
    010000001582086200000000280000000000000028000000060100000000000f";

/// NegTokenResp of Samba with MIC, mechListMIC and `cifs/127.0.0.1`.
const SAMBA_AUTHENTICATE: &str = "a182019e3082019aa28201820482017e4e544c4d53535000030000001800180058000000da00da007000 \
    0000120012004a0100000e000e005c010000040004006a010000100010006e0100001582086206010000 \
    0000000fbe776c4ecb9ed8e1eeca3819d60799c600000000000000000000000000000000000000000000 \
    000000b29e6c2446a56d568b96d629c8a84d0101000000000000004061503d6bdc0197d703fb3d469837 \
    0000000002000a00460049004c004500530001000a00460049004c00450053000400000003000a006600 \
    69006c006500730007000800004061503d6bdc0106000400020000000800300030000000000000000000 \
    000000000000b189296e696b1233c69993f431f6478a82cf432b3d0780cf3c46337e76fe94bb0a001000 \
    0000000000000000000000000000000009001c0063006900660073002f003100320037002e0030002e00 \
    30002e0031000000000057004f0052004b00470052004f005500500073006d0062007500730065007200 \
    56004d0046f783eac0994a4d364a3c20a2cd4b74a312041001000000ec4759a8a6d418aa00000000";

/// NegTokenResp of smbtorture's `ntlmssp_bug14932`: random bytes for AV_PAIRs.
const SAMBA_BROKEN: &str = "a18201233082011fa2820107048201034e544c4d535350000300000018001800580000005f005f007000 \
    000012001200cf0000000e000e00e100000004000400ef00000010001000f30000001582086206010000 \
    0000000fbf7acfccd528e04e168b2dd7a441f85f00000000000000000000000000000000000000000000 \
    0000abababababababababababababababab01010000000000003f3f3f3f3f3f3f3fb8823af1b3dd0815 \
    0000000011a20881503822782b9447fe54947bff17275ab4f418badc2c38fd5bfb0ec1851ecc92bb9bb1 \
    c4d55314ff8c7649f5459019a257004f0052004b00470052004f005500500073006d0062007500730065 \
    00720056004d0083f2f484a680972c64d856640fcb7eaaa312041001000000948a11d108a40d17000000 \
    00";

/// NEGOTIATE_MESSAGE of cifs.ko.
const CIFS_NEGOTIATE: &str = "4e544c4d5353500001000000358208e20000000028000000000000002a000000060c33000000000f0000 \
    0000";

/// AUTHENTICATE_MESSAGE of cifs.ko.
const CIFS_AUTHENTICATE: &str = "4e544c4d535350000300000000000000480000006a006a004800000000000000b20000000e000e00b200 \
    000012001200c000000010001000d200000035a28ae2060c33000000000f6f96be218334663db18eae46 \
    0c70f7a70101000000000000004061503d6bdc0198e7ddef4305070f0000000002000a00460049004c00 \
    4500530001000a00460049004c00450053000400000003000a00660069006c0065007300070008000040 \
    61503d6bdc010000000073006d006200750073006500720073006d006200670075006500730074003000 \
    70c0adb15793bf755c3bedb13afd542b";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b' ').collect();
    digits
        .chunks(2)
        .map(|p| u8::from_str_radix(core::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

fn log_on(challenge: u8, config: AcceptorConfig, tokens: [&str; 2]) -> Result<Done, Refusal> {
    let mut accounts = AccountFile::default();
    let hash = NtHash::from_password("Passw0rd");
    accounts.add(Entry::new("smbuser", 1000, hash, 0)).unwrap();
    let mut acceptor = Acceptor::new(Arc::new(config), [challenge; 8]);
    let [first, second] = tokens.map(hex);
    assert!(matches!(acceptor.step(&first, NOW, &accounts)?, AcceptorStep::Continue(_)));
    match acceptor.step(&second, NOW, &accounts)? {
        AcceptorStep::Done(done) => Ok(done),
        step => panic!("{step:?}"),
    }
}

fn config() -> AcceptorConfig {
    AcceptorConfig {
        allowed_targets: Some(vec!["127.0.0.1".into()]),
        ..AcceptorConfig::standalone("FILES")
    }
}

#[test]
fn samba_logs_on_under_the_strictest_rules() {
    let strict = || AcceptorConfig { require_mic: true, require_target_name: true, ..config() };
    let done = log_on(1, strict(), [SAMBA_NEGOTIATE, SAMBA_AUTHENTICATE]).unwrap();
    assert_eq!((&*done.identity.user, &*done.identity.domain), ("smbuser", "WORKGROUP"));
    assert!(done.has_mic);
    assert!(NegTokenResp::parse(&done.token).unwrap().mic.is_some());

    let elsewhere = AcceptorConfig { allowed_targets: Some(vec![]), ..config() };
    let refusal = log_on(1, elsewhere, [SAMBA_NEGOTIATE, SAMBA_AUTHENTICATE]).unwrap_err();
    assert_eq!(refusal.reason, Reason::WrongTarget("cifs/127.0.0.1".into()));
    let refusal = log_on(2, strict(), [SAMBA_NEGOTIATE, SAMBA_AUTHENTICATE]).unwrap_err();
    assert_eq!(refusal.reason, Reason::WrongPassword);
}

#[test]
fn broken_av_pairs_are_an_invalid_parameter() {
    let refusal = log_on(1, config(), [SAMBA_NEGOTIATE, SAMBA_BROKEN]).unwrap_err();
    assert_eq!(refusal.status(), frevo_wire::Status::INVALID_PARAMETER);
}

#[test]
fn cifs_ko_logs_on_by_default_and_not_where_a_mic_is_required() {
    let done = log_on(1, config(), [CIFS_NEGOTIATE, CIFS_AUTHENTICATE]).unwrap();
    assert_eq!((&*done.identity.user, &*done.identity.domain), ("smbuser", ""));
    assert_eq!(done.identity.workstation, "smbguest0");
    assert!(!done.has_mic && done.token.is_empty());

    let strict = AcceptorConfig { require_mic: true, ..config() };
    let refusal = log_on(1, strict, [CIFS_NEGOTIATE, CIFS_AUTHENTICATE]).unwrap_err();
    assert_eq!(refusal.reason, Reason::MissingMic);
    let strict = AcceptorConfig { require_target_name: true, ..config() };
    let refusal = log_on(1, strict, [CIFS_NEGOTIATE, CIFS_AUTHENTICATE]).unwrap_err();
    assert_eq!(refusal.reason, Reason::MissingTarget);
}
