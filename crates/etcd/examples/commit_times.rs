//! Measures how long etcd takes to write records of 600 bytes in transactions that compare the owner's
//! key: one record in each, and 64.
//!
//! `cargo run --release -p frevo-etcd --features client --example commit_times -- ROUNDS URL...`
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use frevo_etcd::client::{Client, Endpoint, Options};
use frevo_etcd::engine::Engine;
use frevo_etcd::types::{Compare, Fact, LeaseId, Op, Relation, Revision, Txn, TxnAnswer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().ok_or("ROUNDS URL...")?.parse()?;
    let endpoints: Result<_, _> = arguments.map(|url| Endpoint::parse(&url)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let runtime_handle = runtime.handle().clone();
    // Requests run on a thread of their own, as they do in a server.
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || runtime.block_on(ended));
    let client = Client::new(Options::new(endpoints?), runtime_handle)?;
    let owner = Op::Put { key: b"trial/owner".to_vec(), value: Vec::new(), lease: LeaseId(0) };
    let fresh = Op::Delete(frevo_etcd::types::Keys::Prefix(b"trial/".to_vec()));
    send(&client, Txn { success: vec![fresh], ..Txn::default() })?;
    let epoch = send(&client, Txn { success: vec![owner], ..Txn::default() })?.revision;
    for records in [1, 64] {
        let mut times = Vec::new();
        for round in 0..rounds {
            let begun = Instant::now();
            let answer = send(&client, transaction(epoch, round, records))?;
            times.push(begun.elapsed());
            assert!(answer.succeeded, "another owner");
        }
        times.sort();
        let total: Duration = times.iter().sum();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        let each = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
        let rate = (rounds * records) as f64 / total.as_secs_f64();
        println!(
            "{records:>2} records: p50 {}, p99 {}, {rate:.0} records/s",
            each(at(50)),
            each(at(99))
        );
    }
    drop(end);
    // The thread ends with an error because the sender is dropped, which is intended.
    let _ = thread.join();
    Ok(())
}

fn transaction(epoch: Revision, round: usize, records: usize) -> Txn {
    let fact = Fact::CreateRevision(epoch);
    let key = b"trial/owner".to_vec();
    let put = |at: usize| Op::Put {
        key: format!("trial/record/{:016x}", (round * records + at) % 4_096).into_bytes(),
        value: vec![0x5a; 600],
        lease: LeaseId(0),
    };
    Txn {
        compares: vec![Compare { key, relation: Relation::Equal, fact }],
        success: (0..records).map(put).collect(),
        failure: Vec::new(),
    }
}

fn send(client: &Client, txn: Txn) -> Result<TxnAnswer, Box<dyn std::error::Error>> {
    let (send, end) = mpsc::channel();
    client.txn(txn, Box::new(move |answer| drop(send.send(answer))));
    Ok(end.recv()??)
}
