use std::time::Duration;

use frevo_store::IdSource;
use frevo_store::state::ServeLimit;

use super::*;

#[test]
fn a_word_has_a_state_and_an_epoch() {
    for &kind in ShareLife::ALL {
        let word = word(kind, Epoch(9));
        assert_eq!((ShareLife::of(word), epoch_of(word)), (kind, Epoch(9)));
        assert!(!kind.takes_new() || kind.is_served(), "{kind:?}");
    }
}

/// A share that is not given away after all has the grace that it had: the clients that had to go come first.
#[test]
fn the_grace_goes_on_when_a_share_is_kept() {
    let life = Life::elsewhere("data");
    let until = Instant::now() + Duration::from_secs(60);
    life.start().unwrap();
    life.restored(Epoch(1)).unwrap();
    life.serve(Some(until)).unwrap();
    life.drain().unwrap();
    life.keep().unwrap();
    assert_eq!(life.grace(), Some(until));
    life.drain().unwrap();
    life.drained().unwrap();
    life.keep().unwrap();
    assert_eq!(life.grace(), Some(until));
    life.drain().unwrap();
    life.leave(Vec::new()).unwrap();
    assert_eq!(life.grace(), None);
}

/// Readers of the documents, and the metric of owned shares, know each state.
#[test]
fn the_documents_name_all_states() {
    let names: Vec<_> = ShareLife::ALL.iter().map(|kind| kind.name()).collect();
    let list = names.join(", ");
    for page in ["ARCHITECTURE.md", "docs/glossary.md"] {
        let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&list), "{page} has: {list}");
    }
}

#[test]
fn a_share_goes_from_owner_to_owner() {
    let life = Life::elsewhere("data");
    assert!(!life.serves() && life.own(Epoch(1)).is_err());
    assert_eq!(life.refusal(false), Some(Status::BAD_NETWORK_NAME));
    life.start().unwrap();
    assert_eq!(life.refusal(false), Some(Status::SERVER_UNAVAILABLE));
    assert!(life.start().is_err() && !life.serves());
    assert!(life.serve(None).is_err(), "its records are not loaded");
    life.restored(Epoch(4)).unwrap();
    assert!(!life.serves() && life.refusal(false) == Some(Status::SERVER_UNAVAILABLE));
    life.serve(None).unwrap();
    assert!(life.serves() && life.takes_new());
    assert!(
        !life.is_given_away_since(Epoch(4)),
        "its requests do not wait for the end of connections"
    );
    assert_eq!(life.ownership().epoch, Epoch(4));
    let wrong = life.leave(Vec::new()).unwrap_err();
    assert_eq!(wrong.to_string(), "a share that is owned cannot leave");
    life.drain().unwrap();
    assert!(life.serves() && !life.takes_new());
    assert!(life.is_given_away_since(Epoch(4)) && !life.is_given_away_since(Epoch(5)));
    assert_eq!(life.refusal(false), None);
    life.keep().unwrap();
    assert!(life.takes_new_since(Epoch(4)) && life.keep().is_err());
    life.drain().unwrap();
    life.drained().unwrap();
    assert!(
        !life.serves() && !life.serves_since(Epoch(4)) && life.is_owned(),
        "the next owner may"
    );
    assert_eq!((life.state(), life.refusal(false)), (LifeState::Draining(Epoch(4)), None));
    let there: SocketAddr = "192.0.2.1:445".parse().unwrap();
    life.leave(vec![there]).unwrap();
    assert_eq!(life.state(), LifeState::Elsewhere(vec![there]));
    assert!(!life.serves());
    assert_eq!(life.refusal(true), None, "it has just left");
    assert_eq!(life.refusal(false), Some(Status::BAD_NETWORK_NAME), "there it is");
    life.start().unwrap();
    life.fail("the disk is gone".into()).unwrap();
    assert_eq!(life.state(), LifeState::Failed("the disk is gone".into()));
    life.start().unwrap();
    life.own(Epoch(6)).unwrap();
    assert!(life.serves_since(Epoch(6)) && life.takes_new_since(Epoch(0)));
    assert!(!life.serves_since(Epoch(4)) && !life.takes_new_since(Epoch(4)), "of an old user");
    assert_eq!(life.state(), LifeState::Owned(Epoch(6)));
}

#[derive(Debug)]
struct NoNumbers;

impl IdSource for NoNumbers {
    fn take(&self) -> Option<u64> {
        None
    }
}

/// A write that waits since an earlier ownership does not go on under a later one.
#[test]
fn a_gate_is_that_of_its_epoch() {
    let life = Arc::new(Life::elsewhere("data"));
    assert!(life.gate(Epoch(1)).is_none(), "there is no limit");
    let limit = Arc::new(ServeLimit::new());
    limit.set(Duration::from_secs(1));
    let clock = Arc::new(|| Duration::ZERO);
    life.limit_by(&Arc::new(Seat { limit, clock, ids: Arc::new(NoNumbers) }));
    let served = |epoch| {
        life.start().unwrap();
        life.own(Epoch(epoch)).unwrap();
        life.gate(Epoch(epoch)).unwrap()
    };
    let first = served(1);
    assert!(first());
    assert!(life.stop() && !first());
    let second = served(3);
    assert!(second() && !first());
}

#[test]
fn only_the_present_epoch_is_fenced() {
    let life = Life::owned("data");
    assert!(life.is_without_records());
    assert!(life.start().is_err(), "it is served already");
    life.own(Epoch(3)).unwrap();
    assert!(life.own(Epoch(4)).is_err());
    assert!(!life.fence(Epoch(2)) && life.serves());
    assert!(life.fence(Epoch(3)) && !life.serves());
    assert_eq!(life.refusal(false), None, "nobody knows where");
    assert!(!life.fence(Epoch(3)), "once");
    assert_eq!(life.ownership().epoch, Epoch(3), "the store refuses what comes late");
}

/// Tests that closes which a pause has put off are counted among all changes and by themselves.
#[test]
fn late_changes_are_changes_of_their_own() {
    let life = Arc::new(Life::owned("data"));
    let other = life.begin_change();
    assert!(life.has_changes() && !life.has_late_changes());
    let late = life.begin_late_change();
    drop(other);
    assert!(life.has_changes() && life.has_late_changes());
    drop(late);
    assert!(!life.has_changes() && !life.has_late_changes());
}
