//! Tests of the network that tell what the judge hears of connections.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_half_open_connection_is_trouble_until_it_ends() {
    let trace = Arc::new(Trace::new(Instant::now(), false));
    let network = Network::new(2, 1, Dice::new(1, 1), trace);
    let _door = network.listen(0);
    let (mut dice, line) = (Dice::new(2, 1), network.line(1, 0));
    let _stream = network.connect(line).await.unwrap();
    assert!(!network.is_troubled(line));
    network.disturb(&mut dice, State::Vanishing([false, true]));
    // A call that begins now may be repeated elsewhere before the end of this connection.
    let losses = network.losses(line);
    assert!(network.is_troubled(line) && !network.is_troubled(network.line(0, 0)));
    network.heal();
    assert!(!network.is_troubled(line) && network.losses(line) > losses);
}
