use frevo_auth::kerberos::{Key, KeytabEntry};

use super::*;

fn entry(principal: Principal, kvno: u32, etype: EncryptionType, byte: u8) -> KeytabEntry {
    let key = Key::new(etype, &vec![byte; etype.key_len()]).unwrap();
    KeytabEntry { key: ServiceKey { principal, kvno, key }, written: FileTime::ZERO }
}

fn subject() -> Subject {
    let account = Principal::user("FILES$", "A.TEST");
    let aes = EncryptionType::Aes256Sha1;
    let entries = vec![
        entry(account.clone(), 2, aes, 2),
        entry(account.clone(), 3, aes, 3),
        entry(account, 3, EncryptionType::Rc4Hmac, 4),
        entry(Principal::service("cifs", "files", "B.TEST"), 9, aes, 5),
    ];
    let keytab = Keytab { entries, ..Keytab::default() };
    let path = std::path::Path::new("/k");
    let mut found = Subject::of_keytab(path, &keytab, &Policy::default());
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].account.to_string(), "cifs/files@B.TEST");
    found.swap_remove(0)
}

fn sentences(checks: &Checks) -> Vec<(&'static str, &'static str, &str)> {
    checks.0.iter().map(|check| (check.name, check.verdict.word(), &*check.sentence)).collect()
}

#[test]
fn the_keytab_in_a_sentence() {
    let subject = subject();
    let mut checks = Checks(Vec::new());
    assert!(subject.check_keytab(&mut checks));
    assert_eq!(
        sentences(&checks),
        [(
            "keytab",
            "ok",
            "The keytab /k has version 3 of the keys (aes256-cts-hmac-sha1-96), and for old tickets 2."
        )]
    );
    let none = Subject { realm: "C.TEST".into(), ..subject };
    let mut checks = Checks(Vec::new());
    assert!(!none.check_keytab(&mut checks));
    assert!(checks.0[0].sentence.contains("no key of C.TEST"));
}

#[test]
fn the_name_of_the_server_in_a_sentence() {
    let told = |account: Principal, name: Option<&str>| {
        let server_name = name.map(String::from);
        let mut checks = Checks(Vec::new());
        Subject { account, server_name, ..subject() }.check_name(&mut checks);
        sentences(&checks)
            .first()
            .map(|(_, verdict, text)| ((*verdict).to_owned(), (*text).to_owned()))
    };
    let machine = || Principal::user("FILES$", "A.TEST");
    assert_eq!(told(machine(), Some("files")).unwrap().0, "ok");
    let (verdict, text) = told(machine(), Some("NAS")).unwrap();
    assert_eq!(verdict, "warning");
    assert!(text.contains("name = \"FILES\" in [server]"), "{text}");
    assert_eq!(told(machine(), None), None, "no configuration");
    assert_eq!(told(Principal::service("cifs", "files", "A.TEST"), Some("NAS")), None);
}

#[test]
fn each_answer_has_its_sentence() {
    let subject = subject();
    let told = |code, etypes: &[i32], ahead: i64| {
        let mut checks = Checks(Vec::new());
        let now = FileTime::from_unix(1_000, 0);
        let time = FileTime::from_unix(1_000 + ahead, 0);
        let answer = KeyAnswer::Refused { code, time, etypes: etypes.to_vec(), salt: None };
        let goes_on = subject.check_refusal(&mut checks, "dc1", now, &answer);
        let told: Vec<String> = sentences(&checks)
            .iter()
            .map(|(name, word, sentence)| format!("{name} {word} {sentence}"))
            .collect();
        (goes_on, told.join("\n"))
    };
    let required = KdcErrorCode::PRE_AUTHENTICATION_REQUIRED;
    for (code, etypes, ahead, goes_on, words) in [
        (
            required,
            &[18, 23][..],
            0,
            true,
            "account ok The domain has the account FILES$@A.TEST with aes",
        ),
        (required, &[], 1, true, "clock ok The clock of dc1 shows the time"),
        (required, &[18], -20, true, "clock ok The clock of dc1 is 20 seconds behind this server"),
        (required, &[18], 31, true, "clock warning The clock of dc1 is 31 seconds ahead of this"),
        (
            required,
            &[18],
            360,
            true,
            "clock fault The clock of dc1 is 360 seconds ahead of this server, and",
        ),
        (
            required,
            &[23],
            0,
            true,
            "account fault The account FILES$@A.TEST has keys of rc4-hmac only",
        ),
        (KdcErrorCode::CLIENT_UNKNOWN, &[], 0, false, "account fault The domain has no account"),
        (KdcErrorCode::CLIENT_REVOKED, &[], 0, false, "is disabled or locked"),
        (
            KdcErrorCode::SERVER_UNKNOWN,
            &[],
            0,
            false,
            "service fault The domain does not know the service",
        ),
        (KdcErrorCode(99), &[], 0, false, "error 99"),
    ] {
        let (went_on, told) = told(code, etypes, ahead);
        assert!(told.contains(words), "{told}");
        assert_eq!(went_on, goes_on, "{told}");
    }
}

#[test]
fn domains_of_winbind() {
    let said = "Domain Name     DNS Domain            Trust Type  Transitive  In   Out\n\
                BUILTIN                               Local\nFILES                                 Local\n\
                FREVO           FREVO.TEST            Workstation Yes         No   Yes\n";
    assert_eq!(trusts(said), ["FREVO"]);
}
