//! Account files: what is read, kept and written.

use super::*;
use crate::limits::MAX_FORMER_PASSWORD_COUNT;
use alloc::format;

const X: &str = NO_HASH;
const HASH: &str = "A4F49C406510BDCAB6824EE7C30FD852";

fn line(name: &str, nt: &str, flags: &str) -> String {
    format!("{name}:1000:{X}:{nt}:[{flags:<11}]:LCT-65A1B2C3:")
}

#[test]
fn a_file_comes_back_with_its_comments() {
    let text = format!(
        "# users\n{}\n\n{}\n{}\n",
        line("ann", HASH, "U"),
        line("Bob", HASH, "UD"),
        line("nopw", X, "NU"),
    );
    let file = AccountFile::parse(&text).unwrap();
    assert_eq!(*file.to_text(), text);
    assert_eq!(file.entries().count(), 3);
    let ann = file.account("ANN", "ANY").unwrap();
    assert_eq!((&*ann.name, ann.rules.is_disabled), ("ann", false));
    assert_eq!(ann.nt_hash, NtHash::from_password("Password"));
    assert!(file.account("bob", "").unwrap().rules.is_disabled);
    assert!(file.account("nopw", "").is_none());
    assert!(file.account("carl", "").is_none());
}

#[test]
fn an_lm_hash_is_forgotten() {
    let text = format!("ann:1:{HASH}:{HASH}:[U          ]:LCT-00000000:\n");
    let written = AccountFile::parse(&text).unwrap().to_text();
    assert!(written.contains(X));
    assert_eq!(written.matches(HASH).count(), 1);
}

#[test]
fn lines_of_samba_are_accepted() {
    for (text, enabled) in [
        (format!("a:0:{X}:{HASH}:[DU         ]:LCT-5F000000:"), false),
        (format!("a:0:{X}:{HASH}:[UX         ]:LCT-5F000000:"), true),
        (format!("a:0:{X}:{HASH}:[UL         ]:LCT-5F000000:"), false),
        (format!("a$:0:{X}:{HASH}:[W          ]:LCT-5F000000:"), false),
        (format!("a:0:{X}:{HASH}:[U          ]:"), true),
        (format!("a:0:{X}:{HASH}:Full Name:/home/a:/bin/sh"), true),
        (format!("a:4294967295:{X}:{HASH}:[U          ]:LCT-5F000000:Full Name"), true),
    ] {
        let file = AccountFile::parse(&text).unwrap();
        assert_eq!(file.entries().next().unwrap().is_enabled(), enabled, "{text}");
    }
    let text = "a:0:NO PASSWORDXXXXXXXXXXXXXXXXXXXXX:NO PASSWORDXXXXXXXXXXXXXXXXXXXXX:[NU         ]:LCT-0:";
    assert!(AccountFile::parse(text).unwrap().account("a", "").is_none());
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    for bad in [
        "ann",
        "ann:x",
        &format!(":1:{X}:{HASH}:[U]:LCT-0:"),
        &format!("ann:1:{X}:short:[U]:LCT-0:"),
        &format!("ann:1:{X}:{}:[U]:LCT-0:", "Z".repeat(32)),
        &format!("ann:1:{X}:{}:[U]:LCT-0:", "é".repeat(16)),
        &format!("ann:1:{X}:{HASH}:[U:LCT-0:"),
        &format!("ann:1:{X}:{HASH}:[Q]:LCT-0:"),
        &format!("ann:1:{X}:{HASH}:[U]:LCT-zz:"),
    ] {
        let text = format!("# first\n{bad}\n");
        assert_eq!(AccountFile::parse(&text).unwrap_err().line, 2, "{bad}");
    }
    let twice = format!("{}\n{}\n", line("ann", HASH, "U"), line("Ann", HASH, "U"));
    assert_eq!(AccountFile::parse(&twice).unwrap_err().line, 2);
}

/// A file of 4,455 bytes, nearly all blank lines and comments, took 1.2 MB while it was read and
/// written.
#[test]
fn a_blank_line_does_not_take_the_memory_of_an_account() {
    assert!(size_of::<Line>() <= 32, "{} bytes", size_of::<Line>());
}

#[test]
fn lines_are_bounded_in_length_and_number() {
    for (n, taken) in [
        (MAX_ACCOUNT_LINE_LEN - 1, true),
        (MAX_ACCOUNT_LINE_LEN, true),
        (MAX_ACCOUNT_LINE_LEN + 1, false),
    ] {
        assert_eq!(AccountFile::parse(&"#".repeat(n)).is_ok(), taken);
    }
    for (n, taken) in [
        (MAX_ACCOUNT_LINE_COUNT - 1, true),
        (MAX_ACCOUNT_LINE_COUNT, true),
        (MAX_ACCOUNT_LINE_COUNT + 1, false),
    ] {
        assert_eq!(AccountFile::parse(&"#\n".repeat(n)).is_ok(), taken);
    }
}

#[test]
fn accounts_are_added_changed_and_removed() {
    let mut file = AccountFile::parse(&format!("# c\n{}\n", line("ann", HASH, "U"))).unwrap();
    let hash = NtHash::from_password("new");
    file.add(Entry::new("Bob", 7, hash.clone(), 5)).unwrap();
    file.add(Entry::new("carl", 8, hash.clone(), 5)).unwrap();
    assert!(file.add(Entry::new("BOB", 7, hash.clone(), 5)).is_err());
    for name in ["", "a:b", "#a", "a\nb"] {
        assert!(file.add(Entry::new(name, 7, hash.clone(), 5)).is_err(), "{name:?}");
    }
    assert!(file.set_enabled("bob", false));
    assert!(file.account("bob", "").unwrap().rules.is_disabled);
    assert!(file.set_password("ANN", hash.clone(), None, 6));
    assert!(file.remove("ann") && !file.remove("ann"));
    assert!(file.set_enabled("bob", true));
    let groups = ["staff".to_owned(), "Administrators".to_owned()];
    assert_eq!(file.set_groups("bob", &groups), Ok(true));
    assert!(file.set_groups("bob", &["a,b".to_owned()]).is_err());
    assert_eq!(file.set_groups("nobody", &groups), Ok(false));
    let file = AccountFile::parse(&file.to_text()).unwrap();
    let bob = file.membership("BOB").unwrap();
    assert_eq!((bob.rid, &*bob.groups), (Some(1_000), &groups[..]));
    assert_eq!(file.membership("carl").unwrap().rid, Some(1_001));
    assert!(!file.account("bob", "").unwrap().rules.is_disabled);
    assert_eq!(file.account("carl", "").unwrap().nt_hash, hash);
    assert_eq!(file.to_text().lines().next(), Some("# c"));
}

const MACHINE: &str = "S-1-5-21-3004859244-1309964605-2891807487";

#[test]
fn the_machines_sid_is_kept_with_the_accounts() {
    let mut file = AccountFile::parse(&format!("# c\n{}\n", line("ann", HASH, "U"))).unwrap();
    assert_eq!(file.header().machine, None);
    file.set_machine(MACHINE.parse().unwrap(), true);
    let text = file.to_text();
    assert_eq!(text.lines().next(), Some(&*format!("#!frevo accounts 2 sid={MACHINE} samba")));
    let again = AccountFile::parse(&text).unwrap();
    assert_eq!(again.header(), file.header());
    assert_eq!(*again.to_text(), *text);
    for bad in [
        "#!frevo accounts 3",
        "#!frevo accounts",
        "#!frevo users 2",
        "#!frevo accounts 2 sid=S-1-5-32-544",
        "#!frevo accounts 2 sid=S-1-5-21-1-2-3-4",
        "#!frevo accounts 2 color=red",
        "#!frevo accounts 2 samba\n#!frevo accounts 2 samba",
    ] {
        assert!(AccountFile::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn no_new_account_has_the_identifier_of_a_removed_one() {
    let mut file = AccountFile::default();
    let entry = |name| Entry::new(name, 7, NtHash::from_password("x"), 5);
    let rid = |file: &AccountFile, name| file.membership(name).unwrap().rid.unwrap();
    file.add(entry("ann")).unwrap();
    file.add(entry("bob")).unwrap();
    assert!(file.remove("bob"));
    let mut file = AccountFile::parse(&file.to_text()).unwrap();
    file.add(entry("carl")).unwrap();
    assert_eq!((rid(&file, "ann"), rid(&file, "carl")), (1_000, 1_002));
    assert!(file.remove("ann"));
    assert!(file.remove("carl"));
    file.add(entry("dora")).unwrap();
    assert_eq!(rid(&file, "dora"), 1_003);
}

#[test]
fn two_accounts_never_have_one_identifier() {
    let mut file = AccountFile::default();
    let with = |name, rid| Entry { rid, ..Entry::new(name, 7, NtHash::from_password("x"), 5) };
    file.add(with("ann", Some(1_001))).unwrap();
    assert!(file.add(with("bob", Some(1_001))).is_err());
    assert!(file.add(with("bob", Some(513))).is_err(), "the group None");
    file.add(with("admin", Some(500))).unwrap();
    file.add(with("bob", None)).unwrap();
    assert_eq!(file.find("bob").unwrap().rid, Some(1_002));
    assert!(file.set_rid("bob", 1_001).is_err());
    assert_eq!(file.set_rid("bob", 1_002), Ok(true));
    assert_eq!(file.set_rid("Bob", 3_000), Ok(true));
    assert_eq!(file.set_rid("carl", 3_001), Ok(false));
    assert_eq!(file.find("bob").unwrap().rid, Some(3_000));
}

#[test]
fn the_output_of_pdbedit_keeps_identifiers() {
    let account = |name: &str, sid: &str, flags: &str, hash: &str| {
        format!(
            "---------------\nUnix username:        {name}\nNT username:          \n\
             Account Flags:        [{flags:<11}]\nUser SID:             {sid}\n\
             Full Name:            A: b\nLM hash             : {X}\nNT hash             : {hash}\n"
        )
    };
    let of = |rid: u32| format!("{MACHINE}-{rid}");
    let text = [
        account("ann", &of(1_001), "U", HASH),
        account("Bob", &of(3_000), "DU", HASH),
        account("box$", &of(1_005), "W", HASH),
        account("nopw", &of(1_006), "NU", X),
        account("far", "S-1-5-21-9-9-9-1001", "U", HASH),
    ]
    .concat();
    let file = AccountFile::parse_samba(&text).unwrap();
    assert_eq!(file.header().machine, Some(MACHINE.parse().unwrap()));
    assert!(file.header().is_samba);
    let rids: Vec<_> = file.entries().map(|entry| (&*entry.name, entry.rid)).collect();
    let expected = [
        ("ann", Some(1_001)),
        ("Bob", Some(3_000)),
        ("box$", Some(1_005)),
        ("nopw", Some(1_006)),
        ("far", None),
    ];
    assert_eq!(rids, expected);
    assert_eq!(file.account("ANN", "").unwrap().nt_hash, NtHash::from_password("Password"));
    assert!(
        file.account("bob", "").unwrap().rules.is_disabled && file.account("nopw", "").is_none()
    );
    for bad in [
        account("a:b", &of(1), "Q", HASH),
        account("a", "S-1", "U", HASH),
        account("a", &of(1), "U", "zz"),
        account("a", &of(1_000), "U", HASH).repeat(2),
    ] {
        assert!(AccountFile::parse_samba(&bad).is_err(), "{bad}");
    }
    let plain = AccountFile::parse_samba(&line("ann", HASH, "U")).unwrap();
    assert_eq!(plain.find("ann").unwrap().rid, None);
}

#[test]
fn a_password_from_elsewhere_leaves_the_rest() {
    let mut file = AccountFile::default();
    let entry = |name, password| Entry::new(name, 7, NtHash::from_password(password), 5);
    file.add(entry("ann", "one")).unwrap();
    file.add(entry("bob", "one")).unwrap();
    file.set_groups("bob", &["staff".to_owned()]).unwrap();
    file.put(entry("BOB", "two")).unwrap();
    file.put(entry("carl", "two")).unwrap();
    let bob = file.find("bob").unwrap();
    assert_eq!((bob.rid, &*bob.groups), (Some(1_001), &["staff".to_owned()][..]));
    assert_eq!(bob.nt_hash, Some(NtHash::from_password("two")));
    assert_eq!(file.find("carl").unwrap().rid, Some(1_002));
}

#[test]
fn kerberos_keys_stay_with_their_password() {
    let keys = KerberosKeys {
        salt: "BÖX:ann".to_owned(),
        iterations: 4_096,
        aes256: [0xA5; 32],
        aes128: [0x5A; 16],
    };
    let hash = NtHash::from_password("x");
    let mut file = AccountFile::default();
    file.add(Entry::new("ann", 7, hash.clone(), 5).with_kerberos(keys.clone())).unwrap();
    file.set_groups("ann", &["staff".to_owned()]).unwrap();
    let text = file.to_text();
    let again = AccountFile::parse(&text).unwrap();
    assert_eq!(again.find("ann").unwrap(), file.find("ann").unwrap());
    assert_eq!(again.find("ann").unwrap().kerberos, Some(keys.clone()));
    assert!(!format!("{keys:?}").contains("165"), "it prints no key");
    // If a password is set by its hash alone, Kerberos keys cannot be computed, so the old ones are
    // removed.
    assert!(file.set_password("ann", hash, None, 6));
    assert!(!file.to_text().contains("KRB5-"));
    for bad in ["", "1", "1,00,00,00", "1,zz,00,00", "x,,,"] {
        let line = format!("{}KRB5-{bad}:\n", line("ann", HASH, "U"));
        assert!(AccountFile::parse(&line).is_err(), "{bad}");
    }
}

/// The longest name and salt that an account can have fit a line.
#[test]
fn the_longest_account_can_be_read_again() {
    let name = "é".repeat(MAX_ACCOUNT_NAME_LEN / 2);
    let salt = format!("{}{name}", "R".repeat(15));
    let keys = KerberosKeys { salt, iterations: 4_096, aes256: [0; 32], aes128: [0; 16] };
    let mut file = AccountFile::default();
    let hash = NtHash::from_password("x");
    file.add(Entry::new(&name, u32::MAX, hash.clone(), 5).with_kerberos(keys)).unwrap();
    assert!(AccountFile::parse(&file.to_text()).unwrap().find(&name).is_some());
    assert!(file.add(Entry::new(&format!("{name}x"), 7, hash, 5)).is_err());
}

/// Values of accounts as pdbedit of Samba 4.17 prints them, and the rules by which smbd refuses.
#[test]
fn rules_of_samba_are_found() {
    let never = "Wed, 06 Feb 2036 15:06:39 UTC";
    let past = "Thu, 01 Jan 2026 00:00:00 CET";
    let all = "F".repeat(42);
    let rules_of = |flags: &str, ends: &str, set: &str, must: &str, at: &str, hours: &str| {
        let text = format!(
            "---------------\nUnix username:        ann\nAccount Flags:        [{flags}]\n\
             User SID:             {MACHINE}-1001\nWorkstations:         {at}\n\
             Kickoff time:         {ends}\nPassword last set:    {set}\n\
             Password must change: {must}\nLogon hours         : {hours}\n\
             NT hash             : {HASH}\n"
        );
        let file = AccountFile::parse_samba(&text).unwrap();
        assert!(file.samba_rules("bob").is_empty());
        file.samba_rules("ANN").to_vec()
    };
    let set = "Sat, 28 Nov 2026 20:19:51 UTC";
    for never in [never, "never", "0", "", "Tue, 19 Jan 2038 03:14:07 UTC"] {
        assert_eq!(rules_of("U          ", never, set, never, "", &all), []);
    }
    let text = |text: &str| text.to_owned();
    for (found, rule) in [
        (rules_of("DU", never, set, "never", "", &all), SambaRule::Disabled),
        (rules_of("UL", never, set, "never", "", &all), SambaRule::Locked),
        (rules_of("U", past, set, "never", "", &all), SambaRule::Ends(text(past))),
        // The time `2026-01-01` is not in Samba's format. It counts as the account's end, so that
        // no account stays valid by mistake.
        (rules_of("U", "2026-01-01", set, "never", "", &all), SambaRule::Ends(text("2026-01-01"))),
        (rules_of("U", never, set, past, "", &all), SambaRule::PasswordEnds(text(past))),
        (
            rules_of("U", never, set, "never", "pc7,p c", &all),
            SambaRule::Workstations(text("pc7,p c")),
        ),
        (rules_of("U", never, set, "never", "", "00FF"), SambaRule::Hours),
    ] {
        assert_eq!(found, [rule]);
    }
    // An account with the flag X (password never expires) or N (no password required) need not
    // change its password, although it has expired.
    for exempt in ["UX", "NU"] {
        assert_eq!(rules_of(exempt, never, "0", past, "", &all), []);
    }
    let plain = |time: &str, flags: &str| {
        let text = format!("ann:1000:{X}:{HASH}:[{flags:<11}]:LCT-{time}:\n");
        let file = AccountFile::parse_samba(&text).unwrap();
        (file.samba_rules("ann").to_vec(), file.find("ann").unwrap().must_change)
    };
    assert_eq!(plain("65A1B2C3", "U"), (Vec::new(), false));
    assert_eq!(plain("00000000", "U"), (Vec::new(), true));
    assert_eq!(plain("00000000", "UX"), (Vec::new(), false));
    assert_eq!(plain("65A1B2C3", "UL"), (Vec::from([SambaRule::Locked]), false));
    // In Samba's files a last change of 0 means "must change the password"; in Frevo's own it means
    // "unknown".
    let own = format!(
        "#!frevo accounts 2 sid={MACHINE}\nann:1000:{X}:{HASH}:[U          ]:LCT-00000000:\n"
    );
    let own = AccountFile::parse_samba(&own).unwrap();
    assert!(own.samba_rules("ann").is_empty() && !own.find("ann").unwrap().must_change);
}

/// An account keeps those of Samba's rules that it can, and follows them here.
#[test]
fn rules_of_samba_are_taken_over() {
    let some = "0".repeat(21) + &"F".repeat(21);
    let text = |flags: &str| {
        format!(
            "---------------\nUnix username:        ann\nAccount Flags:        [{flags}]\n\
             User SID:             {MACHINE}-1001\nWorkstations:         pc7, pc8\n\
             Kickoff time:         never\nPassword last set:    0\n\
             Password must change: 0\nLogon hours         : {some}\nNT hash             : {HASH}\n"
        )
    };
    let file = AccountFile::parse_samba(&text("U")).unwrap();
    assert!(file.samba_rules("ann").is_empty());
    let rules = file.account("ann", "").unwrap().rules;
    assert_eq!(rules.workstations, ["pc7", "pc8"]);
    assert_eq!(rules.hours, LogonHours::from_hex(&some, false));
    assert!(rules.must_change && !rules.is_disabled);
    let file = AccountFile::parse_samba(&text("UX")).unwrap();
    assert!(!file.find("ann").unwrap().must_change);
}

/// Rules come back from the file as they were set, and stay when the password changes, but for those
/// that a new password fulfils.
#[test]
fn rules_are_kept_with_their_account() {
    let mut file = AccountFile::default();
    let entry = |name, password| Entry::new(name, 7, NtHash::from_password(password), 5);
    file.add(entry("ann", "one")).unwrap();
    let plain = file.to_text();
    let change = RulesChange {
        expires: Some(Some(1_798_761_600)),
        must_change: Some(true),
        hours: Some(Some("mon-fri 07:00-19:00".parse().unwrap())),
        workstations: Some(Vec::from(["desk".to_owned(), "Lap.office".to_owned()])),
        password_never_ends: Some(true),
    };
    assert_eq!(file.set_rules("ANN", &change), Ok(true));
    assert_eq!(file.set_rules("bob", &change), Ok(false));
    let again = AccountFile::parse(&file.to_text()).unwrap();
    assert_eq!(again.find("ann"), file.find("ann"));
    let rules = again.account("ann", "").unwrap().rules;
    assert_eq!((rules.expires, rules.must_change), (Some(1_798_761_600), true));
    assert_eq!(rules.hours, Some("mon-fri 07:00-19:00".parse().unwrap()));
    assert_eq!(rules.workstations, ["desk", "Lap.office"]);
    assert!(again.find("ann").unwrap().password_never_ends());
    file.put(entry("ann", "two")).unwrap();
    let rules = file.account("ann", "").unwrap().rules;
    assert!(!rules.must_change && rules.expires.is_some() && rules.workstations.len() == 2);
    assert_eq!(file.set_rules("ann", &RulesChange::default()), Ok(true));
    assert_eq!(file.account("ann", "").unwrap().rules, rules);
    let back = RulesChange {
        expires: Some(None),
        hours: Some(Some("always".parse().unwrap())),
        workstations: Some(Vec::new()),
        password_never_ends: Some(false),
        ..RulesChange::default()
    };
    assert_eq!(file.set_rules("ann", &back), Ok(true));
    file.set_password("ann", NtHash::from_password("one"), None, 5);
    assert_eq!(*file.to_text(), *plain);
    for bad in
        ["EXPIRES-x", "HOURS-L00", "HOURS-00", "WORKSTATIONS-", "WORKSTATIONS-a b", "FORMER-x"]
    {
        let line = format!("{}{bad}:\n", line("ann", HASH, "U"));
        assert!(AccountFile::parse(&line).is_err(), "{bad}");
    }
}

#[test]
fn former_passwords_are_kept_in_a_bounded_number() {
    let mut file = AccountFile::default();
    let hash = |number: usize| NtHash::from_password(&format!("password {number}"));
    file.add(Entry::new("ann", 7, hash(0), 5)).unwrap();
    for number in 1..=MAX_FORMER_PASSWORD_COUNT + 3 {
        file.keep_former_password("ann", usize::MAX);
        file.set_password("ann", hash(number), None, 5);
    }
    let file = AccountFile::parse(&file.to_text()).unwrap();
    let ann = file.find("ann").unwrap();
    assert_eq!(ann.former.len(), MAX_FORMER_PASSWORD_COUNT);
    let newest = MAX_FORMER_PASSWORD_COUNT + 3;
    assert!(ann.had_password(&hash(newest), 0) && !ann.had_password(&hash(newest - 1), 0));
    assert!(ann.had_password(&hash(newest - 2), 2) && !ann.had_password(&hash(newest - 3), 2));
    assert!(ann.had_password(&hash(3), usize::MAX) && !ann.had_password(&hash(2), usize::MAX));
    let mut file = file.clone();
    file.keep_former_password("ann", 0);
    assert!(file.find("ann").unwrap().former.is_empty());
    let many = alloc::vec![HASH; MAX_FORMER_PASSWORD_COUNT + 1].join(",");
    let line = format!("{}FORMER-{many}:\n", line("ann", HASH, "U"));
    assert!(AccountFile::parse(&line).is_err());
}
