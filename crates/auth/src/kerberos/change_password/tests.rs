use super::*;
use crate::kerberos::message::{ApRep, ApReq, Authenticator, EncApRepPart, ErrorCode};
use crate::kerberos::{EncryptionType, TicketFlags};
use frevo_wire::codec::Parsed;

const SESSION: Key = Key::filled(EncryptionType::Aes256Sha1, 7);

fn ticket() -> ServiceTicket {
    let server = PasswordChange::service("A.TEST");
    let sealed = EncryptedData { etype: 18, kvno: Some(1), cipher: b"sealed" };
    let ticket = application(
        1,
        &[
            &number(0, VERSION),
            &super::super::asn1::text_field(1, "A.TEST"),
            &super::super::asn1::principal_field(2, &server),
            &field(3, &sealed.encode()),
        ],
    );
    ServiceTicket {
        client: Principal::user("FILES$", "A.TEST"),
        server,
        session_key: SESSION,
        ticket,
        flags: TicketFlags::INITIAL,
        auth_time: FileTime::ZERO,
        start_time: FileTime::ZERO,
        end_time: FileTime(u64::MAX),
        renew_till: FileTime::ZERO,
    }
}

fn entropy() -> InitiatorEntropy {
    InitiatorEntropy { subkey: [9; 32], confounders: [[1; 16], [2; 16]], sequence: [0xff; 4] }
}

fn begin(address: &str) -> (Vec<u8>, PasswordChange) {
    let now = FileTime::from_unix(1_700_000_000, 5_000);
    PasswordChange::request(&ticket(), "new secret", address.parse().unwrap(), &entropy(), now)
}

/// The fields of a request that a KDC reads.
struct Read {
    authenticator: Vec<u8>,
    part: Vec<u8>,
}

fn read(request: &[u8]) -> Read {
    let (header, rest) = request.split_first_chunk().unwrap();
    let [length, version, proof] = numbers(*header);
    assert_eq!((usize::from(length), version), (request.len(), 1));
    let (proof, private) = rest.split_at(proof.into());
    let proof = ApReq::parse(proof).unwrap();
    let authenticator =
        SESSION.decrypt(KeyUsage::AP_REQ_AUTHENTICATOR, proof.authenticator.cipher).unwrap();
    let mut fields = Fields::application(private, KRB_PRIV, "t").unwrap();
    fields.constant(0, 5, "t").unwrap();
    fields.constant(1, 21, "t").unwrap();
    let sealed = EncryptedData::parse(fields.required(3, "t").unwrap(), "t").unwrap();
    fields.end("t").unwrap();
    let subkey = Key::filled(EncryptionType::Aes256Sha1, 9);
    let part = subkey.decrypt(KeyUsage::PRIVATE, sealed.cipher).unwrap();
    Read { authenticator: authenticator.to_vec(), part: part.to_vec() }
}

/// Makes the reply of a KDC with this result.
fn reply(change: &PasswordChange, code: u16, text: &[u8], key: &Key, time: Moment) -> Vec<u8> {
    let part = EncApRepPart { time, subkey: None, sequence: Some(3) }.encode();
    let cipher = SESSION.encrypt(KeyUsage::AP_REP, &[3; 16], &part);
    let proof = ApRep(EncryptedData { etype: 18, kvno: None, cipher: &cipher }).encode();
    let data = [&code.to_be_bytes(), text].concat();
    let part = private_part(&data, "192.0.2.1".parse().unwrap(), change.proof.time, 3);
    let cipher = key.encrypt(KeyUsage::PRIVATE, &[4; 16], &part);
    framed(&proof, &private(&EncryptedData { etype: 18, kvno: None, cipher: &cipher }))
}

#[test]
fn a_request_has_the_password_and_the_address_of_its_sender() {
    for (address, kind, octets_of) in [
        ("192.0.2.7", 2, &[192, 0, 2, 7][..]),
        ("::ffff:192.0.2.7", 2, &[192, 0, 2, 7]),
        ("fd00::1", 24, &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        let (request, _) = begin(address);
        let Read { authenticator, part } = read(&request);
        let authenticator = Authenticator::parse(&authenticator).unwrap();
        assert_eq!(authenticator.client, ticket().client);
        assert_eq!(authenticator.sequence, Some(0x3fff_ffff));
        let check = || -> Parsed<()> {
            let mut fields = Fields::application(&part, ENC_KRB_PRIV_PART, "t")?;
            assert_eq!(octets(fields.required(0, "t")?, "t")?, b"new secret");
            fields.required(1, "t")?;
            fields.constant(2, 5, "t")?;
            fields.constant(3, 0x3fff_ffff, "t")?;
            let mut host = Fields::sequence(fields.required(4, "t")?, "t")?;
            host.constant(0, kind, "t")?;
            assert_eq!(octets(host.required(1, "t")?, "t")?, octets_of, "{address}");
            host.end("t")?;
            fields.end("t")
        };
        check().unwrap();
    }
}

#[test]
fn an_answer_is_proven_by_the_time_and_a_key_of_the_exchange() {
    let (_, change) = begin("192.0.2.7");
    for key in [&change.proof.subkey, &SESSION] {
        let good = reply(&change, 0, b"", key, change.proof.time);
        assert!(change.answer(&good).unwrap().is_success());
        for end in 0..good.len() {
            assert!(change.answer(&good[..end]).is_err(), "{end}");
        }
    }
    let refused = reply(&change, 4, b"too young", &change.proof.subkey, change.proof.time);
    let expected = ChangeAnswer::Proven(ChangeResult::SOFT_ERROR, "too young".into());
    assert_eq!(change.answer(&refused).unwrap(), expected);
    assert!(!expected.is_success());
    let binary = reply(&change, 4, &[0, 0, 0, 1], &change.proof.subkey, change.proof.time);
    let expected = ChangeAnswer::Proven(ChangeResult::SOFT_ERROR, String::new());
    assert_eq!(change.answer(&binary).unwrap(), expected);
    let other = Moment { seconds: 1, microseconds: 0 };
    let old = reply(&change, 0, b"", &change.proof.subkey, other);
    assert!(matches!(change.answer(&old), Err(Fault::WrongProof)));
    let foreign = Key::filled(EncryptionType::Aes256Sha1, 8);
    let forged = reply(&change, 0, b"", &foreign, change.proof.time);
    assert!(matches!(change.answer(&forged), Err(Fault::WrongProof)));
}

/// Somebody on the way puts the request's own KRB-PRIV behind the KDC's AP-REP. Taken for an answer, it would
/// bring the password into a message.
#[test]
fn a_request_that_comes_back_is_no_answer() {
    let (request, change) = begin("192.0.2.7");
    let parts = |message: &[u8]| {
        let (header, rest) = message.split_first_chunk().unwrap();
        let (proof, private) = rest.split_at(numbers(*header)[2].into());
        (proof.to_vec(), private.to_vec())
    };
    let (proof, _) =
        parts(&reply(&change, 4, b"too young", &change.proof.subkey, change.proof.time));
    let (_, own) = parts(&request);
    assert!(matches!(change.answer(&framed(&proof, &own)), Err(Fault::WrongProof)));
}

#[test]
fn an_error_proves_nothing() {
    let (_, change) = begin("192.0.2.7");
    let time = Moment { seconds: 1_700_000_000, microseconds: 0 };
    let server = PasswordChange::service("A.TEST");
    let error = KrbError { code: ErrorCode::SKEW, time, server, client_realm: None, data: None };
    let error = error.encode();
    for bytes in [error.clone(), framed(&[], &error)] {
        let answer = change.answer(&bytes).unwrap();
        assert_eq!(answer, ChangeAnswer::Refused(KdcErrorCode::SKEW));
        assert!(!answer.is_success());
    }
    assert!(change.answer(&alloc::vec![0; MAX_KDC_MESSAGE_LEN + 1]).is_err());
}
