//! Spotlight: messages, the language of queries, and the calls of a pipe in any order.

use frevo_rpc::FaultStatus;
use frevo_rpc::mdssvc::{
    Hit, Page, Progress, Reply, Request, Spotlight, Volume, Volumes, pack, parse_query, unpack,
};
use frevo_wire::codec::Malformed;

use crate::{chunk, settles};

/// Calls of one input: more find nothing new.
const CALLS: usize = 64;

/// Bytes that the state of a pipe may take: 16 shares, with the files that were told last.
const MOST_BYTES: usize = 16 << 20;

/// A message, a query, stub data, or the calls of a pipe, as the first byte says.
pub fn spotlight(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 4 {
        0 => settles(data, |bytes| {
            let values = unpack(bytes)?;
            // Runs are written one by one, so that a message may become too long.
            pack(&values).map_err(|_| Malformed::new("Spotlight length"))
        }),
        1 => {
            let text = String::from_utf8_lossy(data);
            if let Err(error) = parse_query(&text, i64::from(*kind) << 24) {
                assert!(error.at <= text.len(), "{error}");
            }
        }
        2 => {
            for opnum in 0..4 {
                if let Ok(request) = Request::parse(opnum, data) {
                    assert_eq!(Request::parse(opnum, &request.encode()), Ok(request));
                }
            }
        }
        _ => calls(data),
    }
}

/// A server with one share.
struct Server;

impl Volumes for Server {
    type Share = ();
    type Cursor = u64;

    fn find(&self, name: &str) -> Option<Volume<()>> {
        (name.len() < 8).then(|| Volume { share: (), name: name.to_owned(), uuid: [1; 16] })
    }

    fn random(&self) -> [u8; 16] {
        [7; 16]
    }

    fn now(&self) -> i64 {
        1_796_071_080
    }
}

fn calls(mut data: &[u8]) {
    let mut pipe = Spotlight::default();
    for _ in 0..CALLS {
        let Some((opnum, rest)) = data.split_first() else { break };
        data = rest;
        let Some(stub) = chunk(&mut data) else { break };
        let opnum = u16::from(*opnum % 4);
        let answer = match pipe.begin(opnum, stub, &Server) {
            Progress::Ended(answer) => answer,
            Progress::Search(search) => {
                let after = search.after.unwrap_or(0);
                let kind = frevo_index::Kind::File;
                let path = format!("file {after}");
                let hit = Hit { id: after, path, kind, size: after, modified: 0, created: 0 };
                let next = (after < 3).then(|| after + 1);
                let page = Page { found: vec![hit], after: next };
                pipe.complete(&search.searched, (after != 2).then_some(page))
            }
        };
        match answer {
            Ok(stub) => assert!(Reply::parse(opnum, &stub).is_ok()),
            Err(fault) => assert!([FaultStatus::NDR, FaultStatus::PROTO_ERROR].contains(&fault)),
        }
        assert!(pipe.bytes() <= MOST_BYTES, "the state of a pipe is bounded");
    }
}
