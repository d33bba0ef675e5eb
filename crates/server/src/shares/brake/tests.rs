//! The clients of a brake, over sessions, reloads and time.

use std::net::IpAddr;

use frevo_store::FileKey;
use frevo_store::security::Token;
use tokio::time::advance;

use super::*;
use crate::access::domain_names::DomainSids;
use crate::base::limits::{BRAKE_CLIENTS, BRAKE_HELD_ADDRESSES, BRAKE_IDLE};

fn rules(action: BrakeAction) -> BrakeRules {
    BrakeRules {
        limits: BrakeLimits {
            files_per_minute: 3,
            files_per_hour: 10,
            renames_per_minute: 3,
            deletions_per_minute: None,
        },
        action,
        slow_to: 1,
        lasts: Duration::from_secs(600),
        except: Names::of(["backup"]),
        except_paths: vec![String::from("/VM/"), String::from("mail.db")],
    }
}

fn client(brake: &Arc<Brake>, user: &str, address: &str) -> Option<Arc<Braked>> {
    with_caller(user, address, |caller| brake.client(caller))
}

fn refuses(brake: &Brake, user: &str, address: &str) -> bool {
    with_caller(user, address, |caller| brake.refuses(caller))
}

fn with_caller<T>(user: &str, address: &str, ask: impl FnOnce(&Caller<'_>) -> T) -> T {
    let (token, domain_sids) = (Token::nobody(), DomainSids::default());
    let address: IpAddr = address.parse().unwrap();
    let caller = Caller {
        user,
        groups: &[],
        groups_are_known: true,
        token: &token,
        domain_sids: &domain_sids,
        address,
    };
    ask(&caller)
}

/// Overwrites as many files as are needed.
fn attack(client: &Braked) -> Option<Alarm> {
    let overwrite = |inode: u64| {
        let file = File::from(FileKey::of_file(1, inode));
        client.note(7, |judge, limits, now| judge.noisy(file, true, limits, now))
    };
    (0..3).filter_map(overwrite).next_back()
}

#[tokio::test(start_paused = true)]
async fn a_client_is_held_over_sessions_reloads_and_addresses_of_its_network() {
    let brake = Arc::new(Brake::new(rules(BrakeAction::Hold)));
    let one = client(&brake, "ann", "2001:db8::1").unwrap();
    assert_eq!(attack(&one).map(|alarm| alarm.action), Some(BrakeAction::Hold));
    assert_eq!(one.grip(), Grip::Held);
    drop(one);
    advance(Duration::from_secs(1_000_000)).await;
    let later = Arc::new(Brake::new(rules(BrakeAction::Hold)).following(&brake));
    for (user, address, grip) in [
        ("ANN", "2001:db8::2", Grip::Held),
        ("ann", "2001:db8:0:1::2", Grip::Free),
        ("ann", "192.0.2.1", Grip::Free),
        ("bob", "2001:db8::1", Grip::Free),
    ] {
        assert_eq!(client(&later, user, address).unwrap().grip(), grip, "{user} {address}");
    }
    assert_eq!((later.held().len(), later.alarms()), (1, 1));
    let seen = &later.held()[0];
    assert_eq!((&*seen.user, seen.gripped.session), ("ann", 7));
    assert_eq!(later.release(|seen| seen.gripped.session == 8), 0);
    assert_eq!(later.release(|seen| seen.gripped.session == 7), 1);
    let one = client(&later, "ann", "2001:db8::1").unwrap();
    assert_eq!((one.grip(), later.held().len()), (Grip::Free, 0));
    assert!(attack(&one).is_some(), "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn an_alarm_holds_nobody_and_the_others_end_but_for_a_hold() {
    for (action, grip, is_forever) in [
        (BrakeAction::Alarm, Grip::Free, false),
        (BrakeAction::Slow, Grip::Slowed, false),
        (BrakeAction::Hold, Grip::Held, true),
        (BrakeAction::Cut, Grip::Cut, false),
    ] {
        let brake = Arc::new(Brake::new(rules(action)));
        let one = client(&brake, "ann", "192.0.2.1").unwrap();
        assert!(attack(&one).is_some());
        assert_eq!((one.grip(), one.gate().is_some()), (grip, action == BrakeAction::Slow));
        assert_eq!(refuses(&brake, "ANN", "192.0.2.9"), action == BrakeAction::Cut);
        advance(Duration::from_secs(599)).await;
        assert_eq!((one.grip(), brake.held().len()), (grip, 1), "{action:?}");
        advance(Duration::from_secs(1)).await;
        assert_eq!(one.grip() == Grip::Held, is_forever, "{action:?}");
        assert_eq!((refuses(&brake, "ann", "192.0.2.1"), one.gate().is_some()), (false, false));
        assert_eq!(brake.held().len(), usize::from(is_forever));
    }
}

#[test]
fn accounts_and_paths_are_excepted() {
    let brake = Arc::new(Brake::new(rules(BrakeAction::Hold)));
    assert!(client(&brake, "Backup", "192.0.2.1").is_none());
    let one = client(&brake, "ann", "192.0.2.1").unwrap();
    for (path, is_watched) in [
        ("vm", false),
        ("vm\\disk.img", false),
        ("VM\\a\\b", false),
        ("vms\\disk.img", true),
        ("mail.DB", false),
        ("a\\mail.db", true),
        ("", true),
    ] {
        assert_eq!(one.watches(path), is_watched, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_clients_are_forgotten_and_held_ones_are_not() {
    let brake = Arc::new(Brake::new(rules(BrakeAction::Hold)));
    let held = client(&brake, "eve", "192.0.2.1").unwrap();
    attack(&held);
    drop(held);
    let count = |brake: &Brake| brake.table.len();
    for number in 0..2 * BRAKE_CLIENTS {
        client(&brake, &format!("user {number}"), "192.0.2.1");
        assert!(count(&brake) <= BRAKE_CLIENTS + 1);
    }
    advance(BRAKE_IDLE + Duration::from_secs(1)).await;
    let ann = client(&brake, "ann", "192.0.2.1");
    assert_eq!((count(&brake), brake.held().len()), (2, 1));
    drop(ann);
}

/// One that is cut off does not keep other guests out: they have no names.
#[test]
fn a_guest_that_is_cut_off_is_known_by_its_address() {
    let brake = Arc::new(Brake::new(rules(BrakeAction::Cut)));
    let one = client(&brake, "", "192.0.2.1").unwrap();
    assert!(attack(&one).is_some());
    assert!(refuses(&brake, "", "192.0.2.1"));
    assert!(!refuses(&brake, "", "192.0.2.2") && !refuses(&brake, "ann", "192.0.2.1"));
}

/// With many addresses an account is held at all of them, and costs no more.
#[test]
fn an_account_with_many_addresses_is_held_as_a_whole() {
    let brake = Arc::new(Brake::new(rules(BrakeAction::Hold)));
    let address = |number: usize| format!("2001:db8:0:{number:x}::1");
    for number in 0..BRAKE_HELD_ADDRESSES {
        let one = client(&brake, "eve", &address(number)).unwrap();
        assert_eq!(one.grip(), Grip::Free, "{number}");
        assert!(attack(&one).is_some());
        assert!(attack(&one).is_none(), "it is held");
    }
    for number in 0..1_000 {
        assert_eq!(client(&brake, "eve", &address(number)).unwrap().grip(), Grip::Held);
    }
    assert_eq!(
        (brake.table.len(), brake.held().len()),
        (BRAKE_HELD_ADDRESSES, BRAKE_HELD_ADDRESSES)
    );
    assert_eq!(client(&brake, "ann", &address(0)).unwrap().grip(), Grip::Free);
    assert_eq!(brake.release(|seen| seen.user == "eve"), BRAKE_HELD_ADDRESSES);
    assert_eq!(client(&brake, "eve", &address(99)).unwrap().grip(), Grip::Free);
}
