//! Every condition of 3.3.5.9.7 and 3.3.5.9.12 by itself: an Open that may be
//! taken up, one thing changed.

use std::time::Duration;

use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::dtyp::AccessMask;

use super::*;
use crate::objects::durable::Asked;

const CLIENT: Guid = Guid([1; 16]);
const CREATE: Guid = Guid([2; 16]);
const KEY: LeaseKey = LeaseKey([3; 16]);
const GONE: Result<(), Status> = Err(Status::OBJECT_NAME_NOT_FOUND);

/// The kind of an Open.
#[derive(Clone, Copy)]
enum Is {
    Durable,
    Resilient,
    Persistent,
    Neither,
}

fn survival(is: Is, create_guid: Option<Guid>) -> Survival {
    let asked = Asked {
        file_name: "Dir\\file".into(),
        desired_access: AccessMask::FILE_ALL,
        share_access: ShareAccess::EMPTY,
        create_options: CreateOptions::EMPTY,
    };
    let survival = Survival::new("Ann", CLIENT, create_guid, None, asked, CreateAction::OPENED);
    let time = Duration::from_secs(1);
    match is {
        Is::Durable => survival.set_durable(time),
        Is::Resilient => survival.set_resilient(time),
        Is::Persistent => {
            survival.set_durable(time);
            survival.set_persistent(true);
        }
        Is::Neither => {}
    }
    survival
}

const fn leased(version: u8) -> Caching {
    Caching::Lease { key: KEY, version, handle: true, deletes: false }
}

const BATCH: Caching = Caching::Oplock { is_batch: true };

const fn kept(survival: &Survival, caching: Caching) -> Kept<'_> {
    Kept { survival, caching, is_attached: false, share: "Data" }
}

fn asked(version: Version, lease: Option<u8>) -> Reconnect<'static> {
    Reconnect {
        file_id: FileId::default(),
        version,
        lease: lease.map(|version| AskedLease { key: KEY, version }),
        client_guid: CLIENT,
        user: "ann",
        file_name: "DIR\\FILE",
        share: "data",
        is_replay: false,
    }
}

const fn two(create_guid: Guid, persistent: bool) -> Version {
    Version::Two { create_guid, persistent, continuous: true }
}

/// Both versions, where they agree.
fn versions() -> [(Version, Option<Guid>); 2] {
    [(Version::One, None), (two(CREATE, false), Some(CREATE))]
}

#[test]
fn what_is_kept_may_be_taken_up_by_its_owner() {
    for (version, guid) in versions() {
        let durable = survival(Is::Durable, guid);
        assert_eq!(verdict(kept(&durable, BATCH), &asked(version, None)), Ok(()));
        for lease in [1, 2] {
            let asked = asked(version, Some(lease));
            assert_eq!(verdict(kept(&durable, leased(lease)), &asked), Ok(()));
        }
        let resilient = survival(Is::Resilient, guid);
        assert_eq!(verdict(kept(&resilient, Caching::Nothing), &asked(version, None)), Ok(()));
    }
    let persistent = survival(Is::Persistent, Some(CREATE));
    let asked = asked(two(CREATE, true), None);
    assert_eq!(verdict(kept(&persistent, Caching::Nothing), &asked), Ok(()));
}

#[test]
fn another_user_is_denied_and_another_client_does_not_find_a_lease() {
    for (version, guid) in versions() {
        let durable = survival(Is::Durable, guid);
        let thief = Reconnect { user: "bob", ..asked(version, None) };
        assert_eq!(verdict(kept(&durable, BATCH), &thief), Err(Status::ACCESS_DENIED));
        let elsewhere = |lease| Reconnect { client_guid: CREATE, ..asked(version, lease) };
        assert_eq!(verdict(kept(&durable, leased(2)), &elsewhere(Some(2))), GONE);
        // Without a lease the client GUID is not compared, so another client of the user may
        // reconnect.
        assert_eq!(verdict(kept(&durable, BATCH), &elsewhere(None)), Ok(()));
        let other_share = Reconnect { share: "other", ..asked(version, None) };
        assert_eq!(verdict(kept(&durable, BATCH), &other_share), GONE);
    }
}

#[test]
fn a_live_session_keeps_its_open() {
    for (version, guid) in versions() {
        let durable = survival(Is::Durable, guid);
        let attached = Kept { is_attached: true, ..kept(&durable, BATCH) };
        assert_eq!(verdict(attached, &asked(version, None)), GONE);
        // Another user is refused with the status of an unknown Open, so that it does not learn
        // that the Open exists.
        let thief = Reconnect { user: "bob", ..asked(version, None) };
        assert_eq!(verdict(attached, &thief), GONE);
    }
}

#[test]
fn a_lease_is_named_as_it_was() {
    for (version, guid) in versions() {
        let durable = survival(Is::Durable, guid);
        let asks = |lease| asked(version, lease);
        assert_eq!(verdict(kept(&durable, leased(2)), &asks(None)), GONE);
        assert_eq!(verdict(kept(&durable, BATCH), &asks(Some(2))), GONE);
        // As on Windows, a lease context of the other version is accepted too, but not another
        // lease key.
        assert_eq!(verdict(kept(&durable, leased(1)), &asks(Some(2))), Ok(()));
        assert_eq!(verdict(kept(&durable, leased(2)), &asks(Some(1))), Ok(()));
        let lease = Some(AskedLease { key: LeaseKey([9; 16]), version: 2 });
        let other_key = Reconnect { lease, ..asks(None) };
        assert_eq!(verdict(kept(&durable, leased(2)), &other_key), GONE);
        let renamed = Reconnect { file_name: "other", ..asks(Some(2)) };
        let refused = Err(Status::INVALID_PARAMETER);
        assert_eq!(verdict(kept(&durable, leased(2)), &renamed), refused);
        let deletes = Caching::Lease { key: KEY, version: 2, handle: true, deletes: true };
        assert_eq!(verdict(kept(&durable, deletes), &renamed), Ok(()));
        // An Open without a lease is reconnected even under another name, because the name is
        // compared only with a lease.
        let renamed = Reconnect { lease: None, ..renamed };
        assert_eq!(verdict(kept(&durable, BATCH), &renamed), Ok(()));
    }
}

#[test]
fn what_the_client_may_not_keep_by_itself_is_not_durable() {
    let no_handle = Caching::Lease { key: KEY, version: 2, handle: false, deletes: false };
    for (version, guid) in versions() {
        let durable = survival(Is::Durable, guid);
        let oplock = Caching::Oplock { is_batch: false };
        for caching in [Caching::Nothing, oplock] {
            assert_eq!(verdict(kept(&durable, caching), &asked(version, None)), GONE);
        }
        assert_eq!(verdict(kept(&durable, no_handle), &asked(version, Some(2))), GONE);
        let neither = survival(Is::Neither, guid);
        assert_eq!(verdict(kept(&neither, BATCH), &asked(version, None)), GONE);
    }
}

#[test]
fn version_two_names_its_create_and_its_kind() {
    let none = survival(Is::Durable, None);
    let other = survival(Is::Durable, Some(Guid([7; 16])));
    for open in [&none, &other] {
        assert_eq!(verdict(kept(open, BATCH), &asked(two(CREATE, false), None)), GONE);
    }
    // As on Windows, an Open made by DHnQ has the GUID of zeros, so a DH2C with this GUID
    // reconnects to it.
    assert_eq!(verdict(kept(&none, BATCH), &asked(two(Guid::default(), false), None)), Ok(()));
    assert_eq!(verdict(kept(&other, BATCH), &asked(two(Guid::default(), false), None)), GONE);
    let durable = survival(Is::Durable, Some(CREATE));
    let refused = Err(Status::INVALID_PARAMETER);
    assert_eq!(verdict(kept(&durable, BATCH), &asked(two(CREATE, true), None)), refused);
    let persistent = survival(Is::Persistent, Some(CREATE));
    assert_eq!(verdict(kept(&persistent, BATCH), &asked(two(CREATE, false), None)), GONE);
}

/// Worth waiting for is the end of the old session where nothing else is wrong.
#[test]
fn a_client_is_early_whose_old_session_has_not_ended() {
    for (version, guid) in versions() {
        let durable = survival(Is::Durable, guid);
        let attached = Kept { is_attached: true, ..kept(&durable, leased(2)) };
        assert!(is_early(attached, &asked(version, Some(2))));
        let renamed = Reconnect { file_name: "other", ..asked(version, Some(2)) };
        assert!(is_early(attached, &renamed), "it will be INVALID_PARAMETER");
        assert!(!is_early(kept(&durable, leased(2)), &asked(version, Some(2))));
        assert!(!is_early(attached, &asked(version, None)));
        let thief = Reconnect { user: "bob", ..asked(version, Some(2)) };
        assert!(!is_early(attached, &thief));
    }
}
