//! Certificates that clients show over QUIC, and their fingerprints as texts.

use frevo_net::quic::{Decision, Fingerprint, Verdict};

/// The bytes are a certificate in DER, and a text.
pub fn certificates(data: &[u8]) {
    let decision = Decision::on(data, Verdict::Untrusted);
    assert_eq!(decision.certificate, Fingerprint::of(data));
    assert!(!decision.name.chars().any(char::is_control));
    assert!(decision.name.len() <= data.len() * 3);
    let text = decision.certificate.to_string();
    assert_eq!(text.parse(), Ok(decision.certificate));
    if let Ok(Ok(read)) = std::str::from_utf8(data).map(str::parse::<Fingerprint>) {
        assert_eq!(read.to_string().parse(), Ok(read));
    }
}
