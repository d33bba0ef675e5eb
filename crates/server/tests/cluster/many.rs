//! A share with very many persistent handles.

use std::time::Duration;

use crate::nodes::*;
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::name::Rules;
use frevo_store::state::{OpenRecord, RecordId, StateStore};
use frevo_store::vfs::OpenHow;
use frevo_store::{Name, Vfs};

const HANDLES: u64 = 10_000;

/// Makes files whose handles are on record like that of the first one.
fn keep_many(cluster: &Cluster, node: &Node, first: &OpenRecord) {
    let folder = cluster.folder();
    let vfs = PosixVfs::open_root(folder, PosixOptions::default()).unwrap();
    for number in 1..HANDLES {
        let name = format!("file {number}");
        std::fs::write(folder.join(&name), name.as_bytes()).unwrap();
        let parsed = Name::parse(&name, Rules::Windows).unwrap();
        let opened = vfs.open(&parsed, &OpenHow::LOOK).unwrap();
        let mut record = OpenRecord {
            durable_file_id: first.durable_file_id + number,
            name: name.clone(),
            file_name: name,
            inode: opened.node.key().inode,
            birth: opened.node.birth().unwrap_or_default(),
            ..first.clone()
        };
        record.create_guid.0[..8].copy_from_slice(&number.to_le_bytes());
        record.lease.key[..8].copy_from_slice(&number.to_le_bytes());
        let id = RecordId(record.durable_file_id);
        let owner = node.life("lasting").ownership();
        let bytes = record.to_bytes();
        cluster.store.put(&owner, id, bytes, Box::new(|result| result.unwrap()));
    }
}

/// Ten thousand handles with leases and locks are there at the next owner. The time is printed:
/// `cargo test --release -p frevo-server --test cluster -- --nocapture ten_thousand`.
#[test]
fn ten_thousand_handles_are_restored() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        let record = cluster.records().remove(0);
        keep_many(cluster, &first, &record);
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.node();
        let began = std::time::Instant::now();
        let restored = second.embedded.start_shares(&BOTH).await;
        println!("{HANDLES} handles were restored in {:?}", began.elapsed());
        assert_eq!(restored, Ok(HANDLES as usize));
        second.embedded.serve_shares(&BOTH, None).await.unwrap();
        taken_up(&second, file).await;
        let began = std::time::Instant::now();
        second.embedded.drain_shares(&BOTH, Duration::from_secs(60)).await.unwrap();
        second.embedded.leave_shares(&BOTH, &[]).await.unwrap();
        println!("they were given away in {:?}", began.elapsed());
        assert!(second.server.files.is_empty());
        assert_eq!(cluster.records().len(), HANDLES as usize);
    });
}
