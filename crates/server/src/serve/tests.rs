use super::*;

fn guid(number: u8) -> Guid {
    Guid([number; 16])
}

fn counts(loads: &Loads) -> Vec<usize> {
    loads.0.lock().iter().map(|load| load.connections).collect()
}

#[test]
fn channels_of_one_client_spread() {
    let loads = Arc::new(Loads::new(4));
    let mut places = Vec::new();
    for _ in 0..8 {
        let mut place = loads.enter(100).unwrap();
        place.choose(Some(guid(1)), true);
        places.push(place);
    }
    assert_eq!(counts(&loads), [2; 4]);
    // A connection without a ClientGuid moves to the core that has the fewest connections.
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut place = loads.enter(100).unwrap();
        place.choose(None, true);
        others.push(place);
    }
    assert_eq!(counts(&loads), [3, 3, 2, 2]);
    // The core with the fewest connections of this client is chosen, and among several the one with
    // the fewest connections of all clients.
    places.retain(|place| place.core != 0);
    assert_eq!(counts(&loads), [1, 3, 2, 2]);
    others.clear();
    for _ in 0..5 {
        let mut place = loads.enter(100).unwrap();
        place.choose(Some(guid(2)), true);
        places.push(place);
    }
    let mut place = loads.enter(100).unwrap();
    place.choose(Some(guid(1)), true);
    assert_eq!(place.core, 0);
}

#[test]
fn places_are_bounded_and_given_back() {
    let loads = Arc::new(Loads::new(2));
    let mut places: Vec<_> = (0..3).map(|_| loads.enter(3).unwrap()).collect();
    assert!(loads.enter(3).is_none());
    for place in &mut places {
        place.choose(Some(guid(1)), true);
    }
    assert!(loads.enter(3).is_none());
    places.pop();
    let place = loads.enter(3).unwrap();
    drop((place, places));
    assert_eq!(counts(&loads), [0, 0]);
    assert!(loads.0.lock().iter().all(|load| load.of_client.is_empty()));
}

#[test]
fn a_connection_stays_where_it_is_when_that_is_as_good() {
    let loads = Arc::new(Loads::new(3));
    let first = loads.enter(9).unwrap();
    let mut second = loads.enter(9).unwrap();
    assert_eq!((first.core, second.core), (0, 1));
    second.choose(None, true);
    assert_eq!(second.core, 1);
}

#[test]
fn a_connection_that_may_not_move_counts_where_it_is() {
    let loads = Arc::new(Loads::new(2));
    let mut places: Vec<_> = (0..4).map(|_| loads.enter(9).unwrap()).collect();
    for place in places.iter_mut().filter(|place| place.core == 0) {
        place.choose(Some(guid(1)), false);
        assert_eq!(place.core, 0);
    }
    // The next connection of the client may move, so it moves to the core that has none of the
    // client's connections.
    let mut next = loads.enter(9).unwrap();
    assert_eq!(next.core, 0);
    next.choose(Some(guid(1)), true);
    assert_eq!((next.core, counts(&loads)), (1, vec![2, 3]));
}

#[test]
fn only_a_negotiate_names_a_client() {
    let mut message = vec![0; 64];
    message[..4].copy_from_slice(&[0xFE, b'S', b'M', b'B']);
    message[4] = 64;
    // The NEGOTIATE request has StructureSize, DialectCount, SecurityMode, Reserved and
    // Capabilities; then ClientGuid and the negotiate contexts' position follow.
    message.extend([36, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend([7; 16]);
    message.extend([0; 8]);
    message.extend([0x10, 0x02]);
    assert_eq!(client_guid(&message), Some(guid(7)));
    message[76..92].fill(0);
    assert_eq!(client_guid(&message), None);
    assert_eq!(client_guid(&message[..80]), None);
    assert_eq!(client_guid(b"\xFFSMB"), None);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_refusals_is_a_line_a_second() {
    let refusals = Refusals::default();
    let mut lines = Vec::new();
    for _ in 0..1_000 {
        refusals.note(|count| lines.push(count));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[1..], [100; 9]);
}
